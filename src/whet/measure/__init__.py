"""Timers, stopping rules, the race and the duel, the correctness gate, the bench.

Names are imported when first used: a process that only measures needs few of them, and no NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.core.lazy import lazily

if TYPE_CHECKING:
    from whet.measure.bench.failures import is_out_of_memory
    from whet.measure.bench.gate import Verdict, compare
    from whet.measure.bench.local import LocalBench
    from whet.measure.bench.protocol import (
        Answer,
        Bench,
        Built,
        Loaded,
        Loader,
        Sampled,
        Visit,
        Wide,
    )
    from whet.measure.bench.remote import RemoteBench
    from whet.measure.cpu import CpuTimer
    from whet.measure.gpu.room import DeviceRoom
    from whet.measure.gpu.timer import CudaTimer
    from whet.measure.racing.duel import Duel, DuelOutcome
    from whet.measure.racing.policy import DuelPolicy, RacePolicy
    from whet.measure.racing.race import Exit, Race, RaceStanding, SampleRequest
    from whet.measure.stopping import Precision
    from whet.measure.timer import Hopeless, Reading, Runnable, Timer, Warm

_HOMES = {
    "Answer": "bench.protocol",
    "Bench": "bench.protocol",
    "Built": "bench.protocol",
    "CpuTimer": "cpu",
    "CudaTimer": "gpu.timer",
    "DeviceRoom": "gpu.room",
    "Duel": "racing.duel",
    "DuelOutcome": "racing.duel",
    "DuelPolicy": "racing.policy",
    "Exit": "racing.race",
    "Hopeless": "timer",
    "Loaded": "bench.protocol",
    "Loader": "bench.protocol",
    "LocalBench": "bench.local",
    "Precision": "stopping",
    "Race": "racing.race",
    "RacePolicy": "racing.policy",
    "Reading": "timer",
    "RemoteBench": "bench.remote",
    "SampleRequest": "racing.race",
    "Runnable": "timer",
    "Sampled": "bench.protocol",
    "RaceStanding": "racing.race",
    "Timer": "timer",
    "Verdict": "bench.gate",
    "Visit": "bench.protocol",
    "Wide": "bench.protocol",
    "Warm": "timer",
    "compare": "bench.gate",
    "is_out_of_memory": "bench.failures",
}

__all__ = [
    "Answer",
    "Bench",
    "Built",
    "CpuTimer",
    "CudaTimer",
    "DeviceRoom",
    "Duel",
    "DuelOutcome",
    "DuelPolicy",
    "Exit",
    "Hopeless",
    "Loaded",
    "Loader",
    "LocalBench",
    "Precision",
    "Race",
    "RacePolicy",
    "RaceStanding",
    "Reading",
    "RemoteBench",
    "Runnable",
    "SampleRequest",
    "Sampled",
    "Timer",
    "Verdict",
    "Visit",
    "Warm",
    "Wide",
    "compare",
    "is_out_of_memory",
]

__getattr__ = lazily(__name__, _HOMES)

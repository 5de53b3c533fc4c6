"""Timers, stopping rules, the race and the duel, the correctness gate, the bench.

Names are imported when first used: a process that only measures needs few of them, and no NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    "Answer": "whet.measure.bench.protocol",
    "Bench": "whet.measure.bench.protocol",
    "Built": "whet.measure.bench.protocol",
    "CpuTimer": "whet.measure.cpu",
    "CudaTimer": "whet.measure.gpu.timer",
    "DeviceRoom": "whet.measure.gpu.room",
    "Duel": "whet.measure.racing.duel",
    "DuelOutcome": "whet.measure.racing.duel",
    "DuelPolicy": "whet.measure.racing.policy",
    "Exit": "whet.measure.racing.race",
    "Hopeless": "whet.measure.timer",
    "Loaded": "whet.measure.bench.protocol",
    "Loader": "whet.measure.bench.protocol",
    "LocalBench": "whet.measure.bench.local",
    "Precision": "whet.measure.stopping",
    "Race": "whet.measure.racing.race",
    "RacePolicy": "whet.measure.racing.policy",
    "Reading": "whet.measure.timer",
    "RemoteBench": "whet.measure.bench.remote",
    "SampleRequest": "whet.measure.racing.race",
    "Runnable": "whet.measure.timer",
    "Sampled": "whet.measure.bench.protocol",
    "RaceStanding": "whet.measure.racing.race",
    "Timer": "whet.measure.timer",
    "Verdict": "whet.measure.bench.gate",
    "Visit": "whet.measure.bench.protocol",
    "Wide": "whet.measure.bench.protocol",
    "Warm": "whet.measure.timer",
    "compare": "whet.measure.bench.gate",
    "is_out_of_memory": "whet.measure.bench.failures",
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


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value

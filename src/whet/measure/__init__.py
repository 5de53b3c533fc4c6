"""Timers, stopping rules, the race and the duel, the correctness gate, the bench.

Names are imported when first used: a process that only measures needs few of them, and no NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.measure.bench import Bench, Built, FirstLook, Hopeless, Loaded, Loader, Round
    from whet.measure.cpu import CpuTimer
    from whet.measure.duel import Duel, DuelOutcome
    from whet.measure.failures import is_out_of_memory
    from whet.measure.gate import Verdict, compare
    from whet.measure.gpu.room import DeviceRoom
    from whet.measure.gpu.timer import CudaTimer
    from whet.measure.local import LocalBench
    from whet.measure.policy import DuelPolicy, RacePolicy
    from whet.measure.race import Exit, Race, Request, Standing
    from whet.measure.remote import RemoteBench
    from whet.measure.stopping import Precision
    from whet.measure.timer import Reading, Runnable, Timer, Warm

_HOMES = {
    "Bench": "whet.measure.bench",
    "Built": "whet.measure.bench",
    "CpuTimer": "whet.measure.cpu",
    "CudaTimer": "whet.measure.gpu.timer",
    "DeviceRoom": "whet.measure.gpu.room",
    "Duel": "whet.measure.duel",
    "DuelOutcome": "whet.measure.duel",
    "DuelPolicy": "whet.measure.policy",
    "Exit": "whet.measure.race",
    "FirstLook": "whet.measure.bench",
    "Hopeless": "whet.measure.bench",
    "Loaded": "whet.measure.bench",
    "Loader": "whet.measure.bench",
    "LocalBench": "whet.measure.local",
    "Precision": "whet.measure.stopping",
    "Race": "whet.measure.race",
    "RacePolicy": "whet.measure.policy",
    "Reading": "whet.measure.timer",
    "RemoteBench": "whet.measure.remote",
    "Request": "whet.measure.race",
    "Round": "whet.measure.bench",
    "Runnable": "whet.measure.timer",
    "Standing": "whet.measure.race",
    "Timer": "whet.measure.timer",
    "Verdict": "whet.measure.gate",
    "Warm": "whet.measure.timer",
    "compare": "whet.measure.gate",
    "is_out_of_memory": "whet.measure.failures",
}

__all__ = [
    "Bench",
    "Built",
    "CpuTimer",
    "CudaTimer",
    "DeviceRoom",
    "Duel",
    "DuelOutcome",
    "DuelPolicy",
    "Exit",
    "FirstLook",
    "Halving",
    "Hopeless",
    "Loaded",
    "Loader",
    "LocalBench",
    "Precision",
    "Race",
    "RacePolicy",
    "Reading",
    "RemoteBench",
    "Request",
    "Round",
    "Runnable",
    "Standing",
    "Timer",
    "Verdict",
    "Warm",
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

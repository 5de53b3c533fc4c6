"""Timers, stopping rules, the race and the duel, the correctness gate, the bench."""

from whet.measure.bench import Bench, Built, FirstLook, Hopeless, Loaded, Loader, Round
from whet.measure.cpu import CpuTimer
from whet.measure.cuda import CudaTimer
from whet.measure.duel import Duel, DuelOutcome
from whet.measure.failures import is_out_of_memory
from whet.measure.gate import Verdict, compare
from whet.measure.halving import Halving
from whet.measure.local import LocalBench
from whet.measure.policy import DuelPolicy, RacePolicy
from whet.measure.race import Exit, Race, Request, Standing
from whet.measure.remote import RemoteBench
from whet.measure.room import DeviceRoom
from whet.measure.stopping import Precision
from whet.measure.timer import Reading, Runnable, Timer, Warm

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

"""What a timer is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from whet.core.timing import L2, Quality, Timing


class Runnable(Protocol):
    """A kernel that is ready to run."""

    def repeat(self, n: int) -> None:
        """Runs it `n` times back to back, and returns when the last has ended."""


def run_once(run: Runnable) -> None:
    """One execution with what belongs around it.

    A runnable may have `before()` and `after()`: hooks and restores that every single execution
    needs and no timing includes.
    """
    before, after = getattr(run, "before", None), getattr(run, "after", None)
    if before is not None:
        before()
    run.repeat(1)
    if after is not None:
        after()


@dataclass(frozen=True)
class Warm:
    """What warm-up taught: how one sample of this kernel is to be taken.

    `estimate_ns` is one execution, good enough to plan with and never to compare with. `busy` is
    the CPU time the kernel uses per wall time when nobody disturbs it (0 asleep, 4 on four
    cores), None where the timer cannot tell. `kernel_s` is what a device spent in the kernel
    itself, 0 where that is not told apart.
    """

    loops: int
    estimate_ns: float
    seconds: float
    busy: float | None = None
    kernel_s: float = 0.0


@dataclass(frozen=True)
class Reading:
    """Samples in nanoseconds per execution, each the mean of `loops` executions.

    `discarded` counts samples that were taken, not vouched for and replaced; none of them is in
    `samples`. `quality` is the worst among the samples. `kernel_s` is as in `Warm`. `remarks` are
    for a person: what disturbs timings here, with the remedy.
    """

    samples: tuple[float, ...]
    loops: int
    timer: str
    l2: L2 = "none"
    quality: Quality = "clean"
    discarded: int = 0
    kernel_s: float = 0.0
    remarks: tuple[str, ...] = ()

    def timing(self) -> Timing:
        return Timing(
            samples=self.samples,
            timer=self.timer,
            loops=self.loops,
            l2=self.l2,
            quality=self.quality,
            discarded=self.discarded,
        )


def joined(readings: Sequence[Reading]) -> Reading:
    """Several readings of one kernel as one; as trustworthy as the worst of them."""
    first = readings[0]
    worst: Quality = next((r.quality for r in readings if r.quality != "clean"), "clean")
    return replace(
        first,
        samples=tuple(sample for reading in readings for sample in reading.samples),
        quality=worst,
        discarded=sum(reading.discarded for reading in readings),
        kernel_s=sum(reading.kernel_s for reading in readings),
        remarks=tuple(dict.fromkeys(text for reading in readings for text in reading.remarks)),
    )


class Timer(Protocol):
    """The only part of this room that touches a clock.

    A sample the timer cannot vouch for is thrown away and taken again, a bounded number of times;
    what then still cannot be vouched for is marked in the reading's `quality`.

    What else a timer may have: `GroupTimer`, `DeviceTimer`, `CacheState`, `Priming`.
    """

    @property
    def name(self) -> str:
        """Recorded with every timing: timings of different timers are never compared."""

    def warm(self, run: Runnable) -> Warm:
        """Runs the kernel until its speed is steady; a slow kernel no more than needed."""

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        """Exactly `samples` samples of a kernel that `warm` was measured on."""


@runtime_checkable
class GroupTimer(Timer, Protocol):
    """One that is quicker with several kernels at once than with one after another."""

    def warm_all(self, runs: Sequence[Runnable]) -> list[Warm]: ...

    def turn(self, runs: Sequence[Runnable], warms: Sequence[Warm]) -> list[Reading]:
        """One sample of each, in this order."""

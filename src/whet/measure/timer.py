"""What a timer is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from whet.core.timing import L2, Quality, Timing

if TYPE_CHECKING:
    from whet.measure.bench.protocol import DeviceRoom


class Runnable(Protocol):
    """A kernel that is ready to run."""

    def repeat(self, n: int) -> None:
        """Runs it `n` times back to back, and returns when the last has ended."""


@runtime_checkable
class Hooked(Protocol):
    """A runnable with hooks and restores that every single execution needs and no timing includes;
    None where there is nothing to run."""

    @property
    def before(self) -> Callable[[], object] | None: ...

    @property
    def after(self) -> Callable[[], object] | None: ...


def run_once(run: Runnable) -> None:
    """One execution with what belongs around it."""
    if not isinstance(run, Hooked):
        run.repeat(1)
        return
    if run.before is not None:
        run.before()
    run.repeat(1)
    if run.after is not None:
        run.after()


@dataclass(frozen=True)
class Warm:
    """What warm-up taught: how one sample of this kernel is to be taken.

    `estimate_ns` is one execution, good enough to plan with and never to compare with. `busy` is
    the CPU time the kernel uses per wall time when nobody disturbs it (0 asleep, 4 on four
    cores), None where the timer cannot tell. `kernel_s` is what a device spent in the kernel
    itself, 0 where that is not told apart. `is_sample`: the estimate is a single execution after
    the first call, timed like any sample, so that a slow kernel need not run again for one.
    """

    loops: int
    estimate_ns: float
    seconds: float
    busy: float | None = None
    kernel_s: float = 0.0
    is_sample: bool = False


@dataclass(frozen=True)
class Hopeless:
    """When a warm-up alone says that a config has lost: so many times the best, and some more."""

    best_ns: float
    times: float
    slack_ns: float

    def includes(self, ns: float) -> bool:
        return ns > self.times * self.best_ns + self.slack_ns

    def after(self, ns: float) -> Hopeless:
        """The same once a config of `ns` is known."""
        return self if ns >= self.best_ns else replace(self, best_ns=ns)


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

    What else a timer may offer, each by itself: `GroupTimer`, `L2Timer`, `FlushingTimer`,
    `PrimedTimer`, `DeviceTimer`.
    """

    @property
    def name(self) -> str:
        """Recorded with every timing: timings of different timers are never compared."""

    def warm(self, run: Runnable) -> Warm:
        """Runs the kernel until its speed is steady; a slow kernel no more than needed."""

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        """Exactly `samples` samples of a kernel that `warm` was measured on."""


@runtime_checkable
class GroupTimer(Protocol):
    """One that is quicker with several kernels at once than with one after another."""

    def warm_all(self, runs: Sequence[Runnable]) -> list[Warm]: ...

    def turn(self, runs: Sequence[Runnable], warms: Sequence[Warm]) -> list[Reading]:
        """One sample of each, in this order."""


@runtime_checkable
class L2Timer(Protocol):
    """One that knows the state of the L2 in which kernels are timed."""

    @property
    def l2(self) -> L2: ...


@runtime_checkable
class FlushingTimer(Protocol):
    """One that needs device memory to clear the L2."""

    def prepare(self, room: DeviceRoom) -> None:
        """Takes it now, or does without from now on."""


@runtime_checkable
class PrimedTimer(Protocol):
    """One that says below which length a kernel has to run once after another one has run, before
    it is timed."""

    @property
    def primed_below_ns(self) -> float: ...


@runtime_checkable
class DeviceTimer(Protocol):
    """One that holds something on a device."""

    def release(self) -> None:
        """Gives it back; the next measurement takes it again."""

"""What a timer is given, and what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

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


class Timer(ABC):
    """The only part of this room that touches a clock.

    A sample the timer cannot vouch for is thrown away and taken again, a bounded number of times;
    what then still cannot be vouched for is marked in the reading's `quality`.
    """

    # The state of the L2 in which kernels are timed.
    l2: L2 = "none"

    # Below which length a kernel runs once untimed after another one has run: that one's data and
    # code are still in the caches. For a longer one it makes no difference.
    primed_below_ns: float = 5e6

    # Whether several kernels are timed faster at once than one after another.
    grouped: bool = False

    @property
    @abstractmethod
    def name(self) -> str:
        """Recorded with every timing: timings of different timers are never compared."""

    @abstractmethod
    def warm(self, run: Runnable) -> Warm:
        """Runs the kernel until its speed is steady; a slow kernel no more than needed."""

    @abstractmethod
    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        """Exactly `samples` samples of a kernel that `warm` was measured on."""

    def warm_all(self, runs: Sequence[Runnable]) -> list[Warm]:
        return [self.warm(run) for run in runs]

    def turn(self, runs: Sequence[Runnable], warms: Sequence[Warm]) -> list[Reading]:
        """One sample of each, in this order."""
        return [self.measure(run, 1, warm) for run, warm in zip(runs, warms, strict=True)]

    def prepare(self, room: DeviceRoom) -> None:  # noqa: B027 - most timers need none
        """Takes the device memory that clearing the L2 needs, or does without from now on."""

    def release(self) -> None:  # noqa: B027
        """Gives back what it holds on a device; the next measurement takes it again."""


def as_timer(timer: Any) -> Timer:
    """The timer itself. One of another package that does not derive from `Timer` has what it
    brings, looked up whenever it is used, and the rest from there."""
    if isinstance(timer, Timer):
        return timer
    parts = [name for name in vars(Timer) if not name.startswith("_") and hasattr(timer, name)]
    offered: dict[str, Any] = {name: property(_part_of(timer, name)) for name in parts}
    offered.setdefault("grouped", {"warm_all", "turn"} <= offered.keys())
    made: Timer = type(type(timer).__name__, (Timer,), offered)()
    return made


def _part_of(timer: Any, name: str) -> Callable[[Any], Any]:
    return lambda adapted: getattr(timer, name)

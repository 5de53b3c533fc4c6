"""Timers by name: `cpu`, which times kernels that run on the CPU, `once`, and those of installed
packages."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from whet.core.errors import UsageError, did_you_mean
from whet.core.plugins import find_plugin, plugin_names
from whet.measure.timer import Reading, Runnable, Timer, Warm

Clock = Callable[[], int]

STEADY_WITHIN = 0.03
MAX_LOOPS = 1 << 24
MAX_RETAKES = 3

# A sample of so many ticks of the CPU clock has a busy ratio that is right within 2 %.
TICKS_TO_JUDGE = 50

# A single-threaded kernel that computes is busy all the time, so that any loss shows. One that
# sleeps, or whose threads wait for each other, varies by itself and is given more room.
ALWAYS_BUSY = (0.9, 1.1)
LEAST_SHARE_ALWAYS_BUSY = 0.95
LEAST_SHARE = 0.8

# The least share of a process's CPU time that its thread has in which a kernel runs alone.
ONE_THREAD = 0.98

# A longer burst, if taken again on a busy machine, would be preempted again.
RETAKEN_BELOW_NS = 5_000_000


def this_thread() -> tuple[int, int] | None:
    """Its CPU time, and how often it has given up its processor by itself; None where the system
    does not tell."""
    who = getattr(resource, "RUSAGE_THREAD", None)
    return None if who is None else (time.thread_time_ns(), resource.getrusage(who).ru_nvcsw)


@dataclass(frozen=True)
class _Burst:
    """`alone`: it ran in this thread only and never waited, so that all the time in which it did
    not run it was kept from running."""

    wall_ns: int
    cpu_ns: int
    alone: bool

    @property
    def busy(self) -> float:
        return self.cpu_ns / self.wall_ns if self.wall_ns > 0 else 0.0

    @property
    def own_ns(self) -> int:
        """What it would have taken on an idle processor, as far as that is known."""
        return min(self.wall_ns, self.cpu_ns) if self.alone else self.wall_ns


class CpuTimer(Timer):
    """Wall time by a monotonic clock, watched over by the process's CPU clock.

    One sample runs the kernel so often that it lasts at least `min_sample_ns`. A sample in which
    the process got visibly less CPU time than the kernel used in warm-up was preempted: it is
    taken again, up to three times, and if none was clean the least disturbed one is kept and the
    reading marked `contaminated`. Of a kernel that computes in one thread and never waits, its CPU
    time is kept in that case, which is what it takes when nobody disturbs it. Warm-up ends when two
    bursts in a row agree within 3 %, or after `warmup_ns`; a kernel slower than that runs once.
    """

    name = "cpu"

    def __init__(
        self,
        clock: Clock = time.perf_counter_ns,
        cpu_clock: Clock = time.process_time_ns,
        *,
        thread: Callable[[], tuple[int, int] | None] | None = None,
        min_sample_ns: int = 200_000,
        warmup_ns: int = 20_000_000,
        cpu_resolution_ns: int | None = None,
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        real = cpu_clock is time.process_time_ns
        self._thread = thread or (this_thread if real else lambda: None)
        self._min_sample_ns = min_sample_ns
        self._warmup_ns = warmup_ns
        self._cpu_resolution_ns = cpu_resolution_ns

    def warm(self, run: Runnable) -> Warm:
        # In a burst shorter than a sample, reading the clocks would count as being busy.
        judged_from = max(self._judged_from_ns(), self._min_sample_ns)
        start = self._clock()
        loops = 1
        busy: float | None = None
        last: float | None = None
        while True:
            burst = self._burst(run, loops)
            judged = burst.wall_ns >= judged_from
            estimate = (burst.own_ns if judged else burst.wall_ns) / loops
            if judged:
                busy = max(busy or 0.0, 1.0 if burst.alone else burst.busy)
            spent = self._clock() - start
            steady = last is not None and abs(estimate - last) <= STEADY_WITHIN * last
            if steady or spent >= self._warmup_ns or loops >= MAX_LOOPS:
                break
            if burst.wall_ns >= self._min_sample_ns:
                last = estimate
            else:
                # The first executions are slow, so that their estimate must not set the pace.
                loops = min(MAX_LOOPS, max(2 * loops, min(10 * loops, self._loops_for(estimate))))
        warm = Warm(self._loops_for(estimate), estimate, spent / 1e9, busy)
        slow = loops == 1 and burst.wall_ns >= self._warmup_ns
        return replace(warm, is_sample=slow and self._undisturbed(burst, warm))

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        kept: list[float] = []
        discarded = 0
        all_clean = True
        for _ in range(samples):
            burst, retakes, clean = self._sample(run, warm)
            kept.append((burst.wall_ns if clean else burst.own_ns) / warm.loops)
            discarded += retakes
            all_clean = all_clean and clean
        return Reading(
            samples=tuple(kept),
            loops=warm.loops,
            timer=self.name,
            quality="clean" if all_clean else "contaminated",
            discarded=discarded,
        )

    def _sample(self, run: Runnable, warm: Warm) -> tuple[_Burst, int, bool]:
        """A burst, how many were thrown away for it, and whether it can be vouched for."""
        best = self._burst(run, warm.loops)
        for retake in range(MAX_RETAKES + 1):
            if self._undisturbed(best, warm):
                return best, retake, True
            if best.alone and best.wall_ns >= RETAKEN_BELOW_NS:
                return best, retake, False
            if retake < MAX_RETAKES:
                best = max(best, self._burst(run, warm.loops), key=lambda burst: burst.busy)
        return best, MAX_RETAKES, False

    def _undisturbed(self, burst: _Burst, warm: Warm) -> bool:
        if warm.busy is None or burst.wall_ns < self._judged_from_ns():
            return True
        low, high = ALWAYS_BUSY
        share = LEAST_SHARE_ALWAYS_BUSY if low <= warm.busy <= high else LEAST_SHARE
        return burst.busy >= share * warm.busy

    def _burst(self, run: Runnable, loops: int) -> _Burst:
        thread, cpu = self._thread(), self._cpu_clock()
        wall = self._clock()
        run.repeat(loops)
        wall = self._clock() - wall
        cpu, now = self._cpu_clock() - cpu, self._thread()
        alone = (
            thread is not None
            and now is not None
            and now[1] == thread[1]
            and now[0] - thread[0] >= ONE_THREAD * cpu
        )
        return _Burst(wall, cpu, alone)

    def _loops_for(self, estimate_ns: float) -> int:
        if estimate_ns <= 0:
            return MAX_LOOPS
        return min(MAX_LOOPS, max(1, math.ceil(self._min_sample_ns / estimate_ns)))

    def _judged_from_ns(self) -> int:
        if self._cpu_resolution_ns is None:
            self._cpu_resolution_ns = _tick_ns(self._cpu_clock)
        return TICKS_TO_JUDGE * self._cpu_resolution_ns


class OnceTimer(Timer):
    """For what is slow and hardly varies, such as the training of a model: the first call of a
    config is its only one, and its wall time the only sample."""

    name = "once"
    samples = 1

    def warm(self, run: Runnable) -> Warm:
        took = getattr(run, "first_call_ns", None) or self._timed(run)
        return Warm(1, took, 0.0, is_sample=True)

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        return Reading(tuple(self._timed(run) for _ in range(samples)), 1, self.name)

    @staticmethod
    def _timed(run: Runnable) -> float:
        start = time.perf_counter_ns()
        run.repeat(1)
        return float(time.perf_counter_ns() - start)


def _tick_ns(cpu_clock: Clock, polls: int = 100_000) -> int:
    """The smallest step the CPU clock is seen to take: some systems count it in milliseconds."""
    steps: list[int] = []
    last = cpu_clock()
    for _ in range(polls):
        now = cpu_clock()
        if now > last:
            steps.append(now - last)
            last = now
            if len(steps) == 5:
                break
    return min(steps, default=10_000_000)


TIMERS: dict[str, Callable[[], Timer]] = {CpuTimer.name: CpuTimer, OnceTimer.name: OnceTimer}

# Without arguments: a class, or a function that makes one in the process that measures.
MakeTimer: TypeAlias = Callable[[], Timer]

_NEEDED = ("name", "warm", "measure")


def timer_maker(timer: str | MakeTimer) -> MakeTimer:
    """What makes the timer of that name; anything else must be able to make one itself."""
    if not isinstance(timer, str):
        if not callable(timer) or not _complete(timer()):
            raise UsageError(
                f"timer= is {timer!r}; give a class of timers or one of {', '.join(_names())}"
            )
        return timer
    if timer in TIMERS:
        return TIMERS[timer]
    plugin = find_plugin("timer", timer)
    if plugin is None:
        raise UsageError(f"unknown timer '{timer}'{did_you_mean(timer, _names())}")
    made = plugin.make()
    if not _complete(made):
        kind = type(made).__name__
        raise plugin.unfit(f"it made {kind!r}, which has no name, warm and measure")
    maker: MakeTimer = plugin.part
    return maker


def _complete(timer: Any) -> bool:
    return all(hasattr(timer, one) for one in _NEEDED)


def _names() -> tuple[str, ...]:
    return (*TIMERS, *plugin_names("timer"))

"""The CPU timer, on a clock that only its kernels move."""

from __future__ import annotations

import pytest

from whet.measure import Warm
from whet.measure.timers import CpuTimer
from whet.testing.fakes import FakeClock, FakeDevice, NoiseModel


class Scripted:
    """A kernel of 1 ms whose next calls are disturbed as told: how long it is put aside."""

    def __init__(self, clock: FakeClock, busy: float = 1.0) -> None:
        self.clock = clock
        self.busy = busy
        self.put_aside_ns: list[float] = []

    def repeat(self, n: int) -> None:
        self.clock.advance(n * 1_000_000, self.busy)
        if self.put_aside_ns:
            self.clock.advance(self.put_aside_ns.pop(0), busy=0.0)


def timer_on(clock: FakeClock, **options: int) -> CpuTimer:
    return CpuTimer(clock, clock.cpu, **{"cpu_resolution_ns": 1, **options})


def test_a_sample_of_a_fast_kernel_lasts_at_least_the_minimum() -> None:
    device = FakeDevice()
    warm = timer_on(device.clock, min_sample_ns=200_000).warm(device.kernel(70))
    assert warm.loops * 70 >= 200_000
    assert (warm.loops - 1) * 70 < 200_000


def test_a_kernel_slower_than_warm_up_runs_once_in_it() -> None:
    device = FakeDevice()
    kernel = device.kernel(100_000_000)
    warm = timer_on(device.clock, warmup_ns=20_000_000).warm(kernel)
    assert kernel.executions == 1
    assert (warm.loops, warm.estimate_ns, warm.seconds) == (1, 100_000_000, 0.1)


def test_a_first_run_that_is_slow_is_not_the_estimate() -> None:
    device = FakeDevice()
    warm = timer_on(device.clock).warm(device.kernel(50_000, first_factor=40))
    assert warm.estimate_ns == pytest.approx(50_000)


def test_warm_up_ends_early_once_it_is_steady() -> None:
    device = FakeDevice()
    timer = timer_on(device.clock, warmup_ns=1_000_000_000)
    assert timer.warm(device.kernel(300_000)).seconds < 0.002


def test_warm_up_of_a_kernel_that_never_gets_steady_is_bounded() -> None:
    device = FakeDevice(NoiseModel(gaussian=0.5), seed=3)
    timer = timer_on(device.clock, warmup_ns=5_000_000)
    assert timer.warm(device.kernel(400_000)).seconds < 0.010


def test_a_kernel_that_takes_no_time_ends_warm_up() -> None:
    device = FakeDevice()
    assert timer_on(device.clock).warm(device.kernel(0)).loops >= 1


def test_undisturbed_samples_are_clean_and_exact() -> None:
    clock = FakeClock()
    timer, kernel = timer_on(clock), Scripted(clock)
    reading = timer.measure(kernel, 3, timer.warm(kernel))
    assert reading.samples == (1e6, 1e6, 1e6)
    assert (reading.quality, reading.discarded) == ("clean", 0)


def test_a_preempted_sample_is_thrown_away_and_taken_again() -> None:
    clock = FakeClock()
    timer, kernel = timer_on(clock), Scripted(clock)
    warm = timer.warm(kernel)
    kernel.put_aside_ns = [0, 700_000, 0]
    reading = timer.measure(kernel, 2, warm)
    assert reading.samples == (1e6, 1e6)
    assert (reading.quality, reading.discarded) == ("clean", 1)


def test_after_three_retakes_the_least_disturbed_is_kept_and_marked() -> None:
    clock = FakeClock()
    timer, kernel = timer_on(clock), Scripted(clock)
    warm = timer.warm(kernel)
    kernel.put_aside_ns = [900_000, 300_000, 500_000, 800_000]
    reading = timer.measure(kernel, 1, warm)
    assert reading.samples == (1.3e6,)
    assert (reading.quality, reading.discarded) == ("contaminated", 3)


class OnABusyMachine(Scripted):
    """It computes in one thread, never waits, and is kept from running half of the time."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.waits = 0

    def repeat(self, n: int) -> None:
        self.clock.advance(n * 10_000_000)
        self.clock.advance(n * 10_000_000, busy=0.0)

    def thread(self) -> tuple[int, int]:
        return self.clock.cpu(), self.waits


def test_a_kernel_that_never_waits_takes_the_time_in_which_it_runs() -> None:
    """Its warm-up was preempted just as much, and so cannot tell."""
    clock = FakeClock()
    kernel = OnABusyMachine(clock)
    timer = CpuTimer(clock, clock.cpu, thread=kernel.thread, cpu_resolution_ns=1)
    warm = timer.warm(kernel)
    assert warm.estimate_ns == 1e7
    reading = timer.measure(kernel, 2, warm)
    assert reading.samples == (1e7, 1e7)
    assert (reading.quality, reading.discarded) == ("contaminated", 0)


def test_a_kernel_that_may_have_waited_takes_all_the_time() -> None:
    clock = FakeClock()
    kernel = OnABusyMachine(clock)

    def slept() -> tuple[int, int]:
        kernel.waits += 1
        return clock.cpu(), kernel.waits

    timer = CpuTimer(clock, clock.cpu, thread=slept, cpu_resolution_ns=1)
    assert timer.measure(kernel, 1, timer.warm(kernel)).samples == (2e7,)


def test_a_kernel_with_threads_of_its_own_takes_all_the_time() -> None:
    clock = FakeClock()
    kernel = OnABusyMachine(clock)
    timer = CpuTimer(clock, clock.cpu, thread=lambda: (clock.cpu() // 2, 0), cpu_resolution_ns=1)
    assert timer.measure(kernel, 1, timer.warm(kernel)).samples == (2e7,)


def test_the_only_run_of_a_slow_kernels_warm_up_is_a_sample() -> None:
    device = FakeDevice()
    timer = timer_on(device.clock)
    assert timer.warm(device.kernel(100_000_000)).is_sample
    assert not timer.warm(device.kernel(1_000_000)).is_sample


def test_one_unclean_sample_marks_the_whole_reading() -> None:
    clock = FakeClock()
    timer, kernel = timer_on(clock), Scripted(clock)
    warm = timer.warm(kernel)
    kernel.put_aside_ns = [0, 900_000, 900_000, 900_000, 900_000]
    assert timer.measure(kernel, 2, warm).quality == "contaminated"


@pytest.mark.parametrize("busy", [0.02, 0.5, 3.8], ids=["sleeper", "half", "threads"])
def test_a_kernel_is_judged_by_its_own_use_of_the_cpu(busy: float) -> None:
    clock = FakeClock()
    timer, kernel = timer_on(clock), Scripted(clock, busy)
    warm = timer.warm(kernel)
    assert warm.busy == pytest.approx(busy, rel=0.01)
    kernel.put_aside_ns = [0, 100_000, 0]
    assert timer.measure(kernel, 3, warm).discarded == 0
    kernel.put_aside_ns = [1_000_000]
    assert timer.measure(kernel, 1, warm).discarded == 1


def test_reading_the_clocks_does_not_pass_for_being_busy() -> None:
    """Every reading of the CPU clock takes 2 µs of it, which shows in bursts of a few µs."""
    device = FakeDevice()

    def costly() -> int:
        device.clock.advance(2_000)
        return device.clock.cpu()

    timer = CpuTimer(device.clock, costly, min_sample_ns=200_000, cpu_resolution_ns=1)
    kernel = device.kernel(5_000)
    warm = timer.warm(kernel)
    assert warm.busy == pytest.approx(1.0, abs=0.02)
    assert timer.measure(kernel, 5, warm).discarded == 0


def test_what_the_cpu_clock_cannot_resolve_is_not_judged() -> None:
    clock = FakeClock()
    timer, kernel = timer_on(clock, cpu_resolution_ns=10_000_000), Scripted(clock)
    assert timer.warm(kernel).busy is None
    kernel.put_aside_ns = [900_000]
    reading = timer.measure(kernel, 1, Warm(loops=1, estimate_ns=1e6, seconds=0, busy=1.0))
    assert reading.samples == (1.9e6,)
    assert (reading.quality, reading.discarded) == ("clean", 0)


def test_the_resolution_of_the_cpu_clock_is_found_out() -> None:
    clock = FakeClock()
    coarse = 0

    def ticking() -> int:
        """Moves in steps of 10 ms, one every thousand readings."""
        nonlocal coarse
        coarse += 1
        return coarse // 1000 * 10_000_000

    timer, kernel = CpuTimer(clock, ticking), Scripted(clock)
    assert timer.warm(kernel).busy is None


def test_a_reading_becomes_a_timing_with_all_that_is_known() -> None:
    clock = FakeClock()
    timer, kernel = timer_on(clock), Scripted(clock)
    kernel.put_aside_ns = [5_000_000]
    timing = timer.measure(kernel, 2, Warm(loops=4, estimate_ns=1e6, seconds=0, busy=1.0)).timing()
    assert timing.samples == (1e6, 1e6)
    assert (timing.timer, timing.loops, timing.discarded) == ("cpu", 4, 1)
    assert (timing.quality, timing.l2) == ("clean", "none")

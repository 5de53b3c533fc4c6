"""Contract tests for timers, as a pytest class.

class TestMine(TimerContract):
    def make(self):
        return MyTimer()

    def kernel(self, ns):
        return a kernel that takes about `ns` by the clock that the timer reads
"""

from __future__ import annotations

import math

import pytest

from whet.measure.timer import Runnable, Timer


class Counted:
    """A runnable that counts how often the one inside was run."""

    def __init__(self, inner: Runnable) -> None:
        self.executions = 0
        self.calls = 0
        self._inner = inner

    def repeat(self, n: int) -> None:
        self.calls += 1
        self.executions += n
        self._inner.repeat(n)


class TimerContract:
    """Implement `make` and `kernel`. `make` is called once per test, before `kernel`."""

    def make(self) -> Timer:
        raise NotImplementedError

    def kernel(self, ns: float) -> Runnable:
        raise NotImplementedError

    @pytest.mark.parametrize("samples", [1, 2, 7])
    def test_it_gives_as_many_samples_as_it_was_asked_for(self, samples: int) -> None:
        timer = self.make()
        run = self.kernel(50_000)
        reading = timer.measure(run, samples, timer.warm(run))
        assert len(reading.samples) == samples
        assert all(math.isfinite(sample) and sample > 0 for sample in reading.samples)

    def test_a_sample_runs_the_kernel_as_often_as_it_says(self) -> None:
        timer = self.make()
        run = Counted(self.kernel(50_000))
        warm = timer.warm(run)
        before = run.executions
        reading = timer.measure(run, 3, warm)
        taken = len(reading.samples) + reading.discarded
        assert run.executions - before >= taken * reading.loops
        assert reading.loops == warm.loops >= 1

    def test_the_reading_names_the_timer_and_says_how_it_was_taken(self) -> None:
        timer = self.make()
        run = self.kernel(50_000)
        timing = timer.measure(run, 2, timer.warm(run)).timing()
        assert timing.timer == timer.name != ""
        assert timing.quality in ("clean", "contaminated", "host_bound")
        assert timing.l2 in ("none", "warm", "cold")

    def test_warm_up_runs_the_kernel_and_estimates_it(self) -> None:
        timer = self.make()
        run = Counted(self.kernel(50_000))
        warm = timer.warm(run)
        assert run.executions >= 1
        assert warm.estimate_ns > 0
        assert warm.seconds >= 0

    def test_a_slow_kernel_is_run_few_times(self) -> None:
        timer = self.make()
        run = Counted(self.kernel(100_000_000))
        warm = timer.warm(run)
        assert warm.loops == 1
        assert run.executions <= 3

    def test_a_kernel_that_raises_is_not_hidden(self) -> None:
        timer = self.make()
        with pytest.raises(ZeroDivisionError):
            timer.warm(_Broken())


class ExactTimerContract(TimerContract):
    """For a timer on a fake clock, whose readings must also be exact."""

    tolerance = 0.01

    @pytest.mark.parametrize("ns", [40.0, 3_000.0, 50_000.0, 7_000_000.0, 100_000_000.0])
    def test_samples_are_per_execution_and_right(self, ns: float) -> None:
        timer = self.make()
        run = self.kernel(ns)
        reading = timer.measure(run, 3, timer.warm(run))
        assert reading.samples == pytest.approx((ns, ns, ns), rel=self.tolerance)
        assert reading.quality == "clean"


class _Broken:
    def repeat(self, n: int) -> None:
        raise ZeroDivisionError("broken on purpose")

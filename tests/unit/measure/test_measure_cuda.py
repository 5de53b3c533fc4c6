"""The CUDA timer, on a simulated stream where all takes a known time, on the host as well."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from whet.core.errors import ConfigFailure
from whet.core.timing import Quality
from whet.measure import Reading, Runnable, Timer, Warm
from whet.measure.gpu.devices import TorchCuda
from whet.measure.gpu.nvml import Health
from whet.measure.gpu.timer import (
    BATCH_NS,
    BATCH_SLEEP_NS,
    MAX_RETRIES,
    QUEUED_OPERATIONS,
    SLEEP_FLOOR_NS,
    SLOW_NS,
    CudaTimer,
    CudaWarm,
    event_pair_ns,
)
from whet.testing.fake_stream import MS, US, Cached, Event, HookedKernel, QueuedKernel, Stream
from whet.testing.timer_kit import ExactTimerContract

# Ahead of the samples: the sleep, the event that tells when it ended, and a lead-in.
LEAD = 5


class TestCudaTimerOnASimulatedStream(ExactTimerContract):
    @pytest.fixture(autouse=True)
    def _stream(self) -> None:
        self.stream = Stream()

    def make(self) -> Timer:
        return CudaTimer(self.stream)

    def kernel(self, ns: float) -> Runnable:
        return QueuedKernel(self.stream, ns)


def timer_on(stream: Stream, **options: Any) -> CudaTimer:
    """One that takes two events to cost nothing, as they do here."""
    return CudaTimer(stream, **{"overhead_ns": 0.0, **options})


def read(timer: Timer, kernel: QueuedKernel, samples: int) -> Reading:
    return timer.measure(kernel, samples, timer.warm(kernel))


def kept(reading: Reading) -> tuple[Quality, int]:
    return reading.quality, reading.discarded


def test_events_around_a_lone_launch_time_the_host() -> None:
    """The simulation has the fault that the timer is there for."""
    stream = Stream(host_ns=0)
    start, end = stream.event(), stream.event()
    start.record()
    QueuedKernel(stream, 5 * US, launch_ns=30 * US).repeat(1)
    end.record()
    stream.synchronize()
    assert start.elapsed_ms(end) * MS == pytest.approx(35 * US)


@pytest.mark.parametrize("samples", [1, 3, 100])
def test_a_kernel_shorter_than_its_launch_reads_as_itself(samples: int) -> None:
    stream = Stream()
    reading = read(timer_on(stream), QueuedKernel(stream, 5 * US), samples)
    assert reading.samples == pytest.approx((5 * US,) * samples)
    assert kept(reading) == ("clean", 0)
    assert (reading.timer, reading.loops) == ("cuda", 1)


def test_a_queue_that_ran_dry_is_thrown_away_and_filled_again_behind_a_longer_sleep() -> None:
    stream = Stream()
    timer, kernel = timer_on(stream), QueuedKernel(stream, 5 * US)
    warm = timer.warm(kernel)
    stream.sleeps.clear()
    kernel.launch_ns = 200 * US
    reading = timer.measure(kernel, 4, warm)
    first, second, third = stream.sleeps
    assert (second, third) == pytest.approx((2 * first, 4 * first))
    assert reading.samples == pytest.approx((5 * US,) * 4)
    assert kept(reading) == ("clean", 8)


def test_a_single_stall_of_the_host_costs_one_batch() -> None:
    stream = Stream()
    timer = timer_on(stream)
    warm = timer.warm(QueuedKernel(stream, 5 * US))
    kernel = QueuedKernel(stream, 5 * US, first_launches_ns=(0, 0, 50 * MS))
    reading = timer.measure(kernel, 4, warm)
    assert reading.samples == pytest.approx((5 * US,) * 4)
    assert kept(reading) == ("clean", 4)


def test_a_hopeless_host_is_given_three_more_chances_and_then_marked() -> None:
    stream = Stream()
    timer, kernel = timer_on(stream), QueuedKernel(stream, 5 * US)
    warm = timer.warm(kernel)
    kernel.launch_ns, kernel.launches = 50 * MS, 0
    reading = timer.measure(kernel, 2, warm)
    assert kept(reading) == ("host_bound", 2 * (1 + MAX_RETRIES))
    assert kernel.launches == 2 * (1 + MAX_RETRIES) + 2
    assert len(reading.samples) == 2
    assert min(reading.samples) > 5 * US


def test_hooks_run_around_every_execution_in_order() -> None:
    stream = Stream()
    kernel = HookedKernel(stream, 5 * US)
    timer = timer_on(stream)
    warm = timer.warm(kernel)
    assert kernel.order == ["before", "launch", "after"] * kernel.launches
    kernel.order.clear()
    timer.measure(kernel, 3, warm)
    assert kernel.order == ["before", "launch", "after"] * 3


def test_what_hooks_do_is_not_timed() -> None:
    stream = Stream()

    def restore() -> None:
        stream.on_host(100 * US)
        stream.queue(300 * US)

    reading = read(timer_on(stream), HookedKernel(stream, 5 * US, restore, restore), 5)
    assert reading.samples == pytest.approx((5 * US,) * 5)
    assert kept(reading) == ("clean", 0)


@pytest.mark.parametrize("hook", ["before", "after"])
def test_a_hook_that_waits_for_the_device_makes_the_reading_host_bound(hook: str) -> None:
    stream = Stream()
    kernel = HookedKernel(stream, 5 * US, **{hook: stream.synchronize})
    timer = timer_on(stream)
    warm = timer.warm(kernel)
    reading = timer.measure(kernel, 3, warm)
    assert kept(reading) == ("host_bound", 1), "warm-up has tried already: one chance is enough"
    assert timer.measure(kernel, 3, Warm(1, 5 * US, 0.0)).quality == "host_bound"


def test_a_host_too_slow_for_any_sleep_is_not_tried() -> None:
    stream = Stream()
    kernel = QueuedKernel(stream, 5 * US, launch_ns=500 * MS)
    reading = read(timer_on(stream), kernel, 2)
    assert kept(reading) == ("host_bound", 0)
    assert kernel.launches == 5, "one, one behind a sleep, one alone, and two samples"


def test_a_host_bound_kernel_that_queues_after_all_is_clean() -> None:
    stream = Stream()
    warm = CudaWarm(1, 5 * US, 0.0, queues=False)
    reading = timer_on(stream).measure(QueuedKernel(stream, 5 * US), 3, warm)
    assert kept(reading) == ("clean", 0)


def test_a_slow_kernel_is_launched_once_in_warm_up_and_once_a_sample() -> None:
    stream = Stream()
    timer, kernel = timer_on(stream), QueuedKernel(stream, 2 * SLOW_NS)
    warm = timer.warm(kernel)
    assert kernel.launches == 1
    assert warm.estimate_ns == pytest.approx(2 * SLOW_NS, rel=0.01)
    reading = timer.measure(kernel, 3, warm)
    assert kernel.launches == 4
    assert kept(reading) == ("clean", 0)


def test_slow_kernels_are_not_queued_together_lest_a_stall_should_cost_many() -> None:
    stream = Stream()
    timer = timer_on(stream)
    warm = timer.warm(QueuedKernel(stream, BATCH_NS / 3))
    kernel = QueuedKernel(stream, BATCH_NS / 3, first_launches_ns=(500 * MS,))
    reading = timer.measure(kernel, 12, warm)
    assert len(reading.samples) == 12
    assert kept(reading)[0] == "clean"
    assert 0 < reading.discarded <= 3


def test_a_slow_first_launch_does_not_make_a_kernel_slow() -> None:
    stream = Stream()
    kernel = QueuedKernel(stream, 50 * US, first_launches_ns=(80 * MS,))
    warm = timer_on(stream).warm(kernel)
    assert warm.estimate_ns == pytest.approx(50 * US)
    assert sum(stream.sleeps) < 5 * MS


def test_loading_a_slow_kernel_counts_neither_as_the_kernel_nor_as_its_launch() -> None:
    stream = Stream()
    timer, kernel = timer_on(stream), QueuedKernel(stream, 100 * MS, first_launches_ns=(300 * MS,))
    warm = timer.warm(kernel)
    assert kernel.launches == 1
    assert warm.estimate_ns == pytest.approx(100 * MS, rel=0.01)
    assert kept(timer.measure(kernel, 2, warm)) == ("clean", 0)
    assert max(stream.sleeps) < 10 * MS


def test_a_stall_in_warm_up_does_not_make_later_sleeps_longer() -> None:
    stream = Stream()
    timer, kernel = timer_on(stream), QueuedKernel(stream, 50 * US, first_launches_ns=(0, 10 * MS))
    warm = timer.warm(kernel)
    stream.sleeps.clear()
    timer.measure(kernel, 1, warm)
    assert sum(stream.sleeps) < 1 * MS


def test_warm_up_is_one_launch_once_the_clock_is_steady() -> None:
    stream = Stream()
    kernel = QueuedKernel(stream, 50 * US)
    warm = timer_on(stream).warm(kernel)
    assert kernel.launches == 1
    assert warm.estimate_ns == pytest.approx(50 * US)
    assert warm.kernel_s == pytest.approx(50e-6)


def test_nothing_is_timed_before_the_clock_has_come_to_rest() -> None:
    class Waking(Stream):
        """Its clock rises with every sleep until it has reached its full speed."""

        def sleep(self, cycles: int) -> None:
            self.slowness = max(1.0, 4.0 - 0.1 * len(self.sleeps))
            super().sleep(cycles)

    class Clocked(QueuedKernel):
        def repeat(self, n: int) -> None:
            self.slowness_seen = self.stream.slowness
            super().repeat(n)

    stream = Waking()
    kernel = Clocked(stream, 5 * US)
    timer_on(stream).warm(kernel)
    assert kernel.slowness_seen == 1.0


def test_a_clock_that_never_comes_to_rest_is_reported_and_not_waited_for_forever() -> None:
    class Restless(Stream):
        def sleep(self, cycles: int) -> None:
            self.slowness = 1.0 + 0.1 * (len(self.sleeps) % 7)
            super().sleep(cycles)

    reading = read(timer_on(stream := Restless()), QueuedKernel(stream, 5 * US), 1)
    assert any("not settle" in remark for remark in reading.remarks)


def test_a_device_that_was_busy_a_moment_ago_is_not_waited_for_again() -> None:
    stream = Stream()
    timer = timer_on(stream)
    timer.warm(QueuedKernel(stream, 5 * US))
    stream.sleeps.clear()
    timer.warm(QueuedKernel(stream, 5 * US))
    assert len(stream.sleeps) == 1
    stream.on_host(5_000 * MS)
    timer.warm(QueuedKernel(stream, 5 * US))
    assert len(stream.sleeps) > 4


def test_throttling_is_reported_with_what_the_driver_says() -> None:
    stream = Stream()
    timer, kernel = timer_on(stream), QueuedKernel(stream, 5 * US)
    warm = timer.warm(kernel)
    assert timer.measure(kernel, 1, warm).remarks == ()
    stream.slowness, stream.said = 1.25, Health(held_back_by=("power cap",))
    stream.on_host(600 * MS)
    (remark,) = timer.measure(kernel, 1, warm).remarks
    assert "dropped to 80 %" in remark
    assert "power cap" in remark


def test_another_process_on_the_device_is_reported() -> None:
    stream = Stream()
    stream.said = Health(others=(4711,))
    remarks = read(timer_on(stream), QueuedKernel(stream, 5 * US), 1).remarks
    assert any("4711" in remark for remark in remarks)


def test_a_host_too_slow_to_fill_the_queue_is_reported() -> None:
    stream = Stream()
    remarks = read(timer_on(stream), QueuedKernel(stream, 5 * US, launch_ns=500 * MS), 1).remarks
    assert any("too slow" in remark for remark in remarks)


def test_what_two_events_cost_is_found_out_and_taken_off() -> None:
    class Costly(Stream):
        """Every event waits for the device to drain, as real ones do."""

        def event(self) -> Event:
            return CostlyEvent(self)

    class CostlyEvent(Event):
        def record(self) -> None:
            self._stream.queue(700)
            super().record()

    stream = Costly()
    timer = CudaTimer(stream)
    reading = read(timer, QueuedKernel(stream, 5 * US), 5)
    assert timer.overhead_ns == pytest.approx(700)
    assert reading.samples == pytest.approx((5 * US,) * 5)


def test_nothing_is_cleared_during_calibration() -> None:
    stream = Stream()
    event_pair_ns(stream)
    assert (stream.flushes, stream.moves) == ([], 0)


def test_calibration_happens_once() -> None:
    stream = Stream()
    timer = CudaTimer(stream)
    timer.warm(QueuedKernel(stream, 5 * US))
    stream.sleeps.clear()
    timer.warm(QueuedKernel(stream, 5 * US))
    assert len(stream.sleeps) == 1


def test_a_turn_takes_one_sample_of_each_from_one_queue() -> None:
    stream = Stream()
    timer = timer_on(stream)
    kernels = [QueuedKernel(stream, ns * US) for ns in (5, 9, 7)]
    warms = [timer.warm(kernel) for kernel in kernels]
    stream.sleeps.clear()
    readings = timer.turn(kernels, warms)
    assert [reading.samples for reading in readings] == [
        pytest.approx((ns * US,)) for ns in (5, 9, 7)
    ]
    assert [kernel.launches for kernel in kernels] == [2, 2, 2]
    assert len(stream.sleeps) == 1


def test_a_turn_of_many_is_split_where_the_queue_would_be_too_long() -> None:
    stream = Stream()
    timer = timer_on(stream)
    kernels = [QueuedKernel(stream, 5 * US) for _ in range(100)]
    readings = timer.turn(kernels, [timer.warm(kernel) for kernel in kernels])
    assert len(readings) == 100
    assert stream.most_queued <= LEAD + QUEUED_OPERATIONS


def test_in_a_turn_a_kernel_that_waits_for_the_device_is_marked() -> None:
    stream = Stream()
    timer = timer_on(stream)
    kernels = [QueuedKernel(stream, 5 * US), HookedKernel(stream, 5 * US, stream.synchronize)]
    readings = timer.turn(kernels, [timer.warm(kernel) for kernel in kernels])
    assert [reading.quality for reading in readings] == ["clean", "host_bound"]


def test_a_graph_is_captured_once_and_replayed() -> None:
    stream = Stream()
    timer = timer_on(stream, graph=True)
    kernel = QueuedKernel(stream, 5 * US)
    warm = timer.warm(kernel)
    reading = timer.measure(kernel, 3, warm)
    timer.measure(kernel, 3, warm)
    assert stream.captures == 1
    assert reading.timer == "cuda-graph"
    assert (reading.l2, reading.samples) == ("cold", pytest.approx((5 * US,) * 3))


class CapturesNothing:
    """torch's, where what is recorded launches on a stream of its own."""

    CUDAGraph = default_generators = MagicMock()

    @contextlib.contextmanager
    def graph(self, _: object) -> Iterator[None]:
        yield
        warnings.warn("The CUDA Graph is empty. This usually means", stacklevel=2)


def test_a_graph_of_nothing_is_refused() -> None:
    api: Any = TorchCuda.__new__(TorchCuda)
    api._cuda, api._device = CapturesNothing(), 0
    with pytest.raises(ConfigFailure, match="it launches nothing on the current stream"):
        api.captured(MagicMock())


def test_kernel_seconds_count_every_launch_that_was_sampled_or_thrown_away() -> None:
    stream = Stream()
    timer, kernel = timer_on(stream), QueuedKernel(stream, 5 * US)
    warm = timer.warm(kernel)
    kernel.launch_ns = 200 * US
    reading = timer.measure(kernel, 4, warm)
    assert reading.discarded == 8
    assert reading.kernel_s == pytest.approx(12 * 5e-6)


def test_releasing_gives_back_what_the_device_holds() -> None:
    stream = Stream()
    timer_on(stream).release()
    assert stream.released == 1


def test_the_l2_is_cold_by_default() -> None:
    stream = Stream()
    reading = read(timer_on(stream), Cached(stream, 5 * US), 3)
    assert reading.l2 == "cold"
    assert reading.samples == pytest.approx((10 * US,) * 3)


def test_the_l2_stays_warm_when_asked_to() -> None:
    stream = Stream()
    reading = read(timer_on(stream, l2_bytes=0), Cached(stream, 5 * US), 3)
    assert reading.l2 == "warm"
    assert reading.samples == pytest.approx((5 * US,) * 3)
    launches = len(reading.samples) + 1  # and the warm-up
    assert (stream.moves, stream.flushes) == (launches, [])


@pytest.mark.parametrize(("asked", "read_bytes"), [(None, 1 << 20), (4096, 4096)])
def test_a_flush_reads_as_much_as_the_l2_holds_or_as_was_asked(
    asked: int | None, read_bytes: int
) -> None:
    stream = Stream()
    kernel = QueuedKernel(stream, 5 * US)
    read(timer_on(stream, l2_bytes=asked), kernel, 2)
    assert stream.flushes == [read_bytes] * kernel.launches


@pytest.mark.parametrize(
    ("cleared", "comparable"), [(None, True), (1 << 20, True), (1 << 21, True), (4096, False)]
)
def test_clearing_less_than_the_l2_holds_is_a_method_of_its_own(
    cleared: int | None, comparable: bool
) -> None:
    stream = Stream()
    kernel = QueuedKernel(stream, 5 * US)
    whole, some = (
        read(timer_on(stream, l2_bytes=size), kernel, 2).timing() for size in (None, cleared)
    )
    assert some.comparable(whole) is comparable


@pytest.mark.parametrize("hooked", [False, True])
def test_no_more_is_queued_behind_a_sample_than_leaves_its_events_right(hooked: bool) -> None:
    stream = Stream()

    def restore() -> None:
        for _ in range(4):
            stream.queue(1 * US)

    kernel = (
        HookedKernel(stream, 5 * US, restore, restore) if hooked else QueuedKernel(stream, 5 * US)
    )
    reading = read(timer_on(stream), kernel, 500)
    assert kept(reading) == ("clean", 0)
    assert LEAD < stream.most_queued <= LEAD + QUEUED_OPERATIONS


def test_the_device_never_sleeps_long_for_hooks_that_are_slow_on_the_host() -> None:
    stream = Stream()
    kernel = HookedKernel(stream, 5 * US, before=lambda: stream.on_host(2 * MS))
    reading = read(timer_on(stream), kernel, 20)
    assert kept(reading) == ("clean", 0)
    assert max(stream.sleeps) <= BATCH_SLEEP_NS + SLEEP_FLOOR_NS


def test_what_an_event_pair_costs_is_subtracted_but_never_most_of_a_sample() -> None:
    stream = Stream()
    timer = CudaTimer(stream, overhead_ns=2 * US)
    assert read(timer, QueuedKernel(stream, 5 * US), 1).samples == pytest.approx((3 * US,))
    assert read(timer, QueuedKernel(stream, 2 * US), 1).samples == pytest.approx((0.2 * US,))


def test_events_are_made_once_and_used_again() -> None:
    class Counting(Stream):
        made = 0

        def event(self) -> Event:
            self.made += 1
            return super().event()

    stream = Counting()
    timer, kernel = timer_on(stream), QueuedKernel(stream, 5 * US)
    warm = timer.warm(kernel)
    timer.measure(kernel, 200, warm)
    made = stream.made
    timer.measure(kernel, 200, warm)
    assert stream.made == made < QUEUED_OPERATIONS


@pytest.mark.medium
def test_importing_the_timer_does_not_import_torch() -> None:
    code = (
        "import sys; from whet.measure.gpu.timer import CudaTimer; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""Near a full device: what is taken, given back, and done without."""

from __future__ import annotations

import pytest

from whet.core.status import Status
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import DeviceRoom, NoRoom, from_exception, is_out_of_memory
from whet.measure.gpu.timer import CudaTimer
from whet.testing.fake_stream import US, OutOfMemoryError, QueuedKernel, Stream

MIB = 1 << 20


class Device:
    """Has `free` bytes, and `cached` more once caches are emptied."""

    def __init__(self, free: int, cached: int = 0) -> None:
        self.free = free
        self.cached = cached

    def empty(self) -> None:
        self.free, self.cached = self.free + self.cached, 0

    def allocate(self, size: int) -> int:
        if size > self.free:
            raise OutOfMemoryError("CUDA out of memory")
        self.free -= size
        return size


class TestRoom:
    def test_what_is_cached_is_given_back_and_it_is_tried_once_more(self) -> None:
        device = Device(free=10, cached=90)
        assert DeviceRoom(empty=device.empty).take(50, lambda: device.allocate(50)) == 50

    def test_what_still_does_not_fit_is_out_of_memory(self) -> None:
        device = Device(free=10, cached=20)
        with pytest.raises(OutOfMemoryError):
            DeviceRoom(empty=device.empty).take(50, lambda: device.allocate(50))

    def test_another_failure_empties_nothing(self) -> None:
        device = Device(free=10, cached=20)
        with pytest.raises(ZeroDivisionError):
            DeviceRoom(empty=device.empty).take(50, lambda: 1 // 0)
        assert device.cached == 20

    def test_the_limit_is_for_all_that_is_taken(self) -> None:
        room = DeviceRoom(100)
        room.take(60, lambda: None)
        with pytest.raises(NoRoom, match="50 bytes needed, but device_memory leaves 40"):
            room.take(50, lambda: None)
        room.take(40, lambda: None)

    def test_what_could_not_be_taken_does_not_count(self) -> None:
        device, room = Device(free=10), DeviceRoom(100, empty=lambda: None)
        with pytest.raises(OutOfMemoryError):
            room.take(100, lambda: device.allocate(100))
        room.take(100, lambda: None)

    def test_a_config_that_needs_the_memory_itself_lacks_resources(self) -> None:
        for error in (OutOfMemoryError("CUDA out of memory"), NoRoom(""), MemoryError()):
            assert is_out_of_memory(error)
            assert from_exception(error).status is Status.RESOURCES
        assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access"))


def timer_on(stream: Stream, **options: int) -> CudaTimer:
    return CudaTimer(stream, overhead_ns=0.0, **options)


def reading(timer: CudaTimer, stream: Stream) -> tuple[str, str]:
    """The state of the L2 that a reading says, and what it remarks."""
    kernel = QueuedKernel(stream, 5 * US)
    taken = timer.measure(kernel, 1, timer.warm(kernel))
    return taken.l2, " ".join(taken.remarks)


class TestFlushing:
    def test_without_memory_the_l2_is_warm_and_said_to_be(self) -> None:
        stream = Stream()
        stream.free_bytes = 0
        timer = timer_on(stream)
        l2, said = reading(timer, stream)
        assert l2 == "warm"
        assert stream.flushes == []
        assert "the 1 MiB" in said

    def test_a_smaller_buffer_will_do_while_it_clears_all_of_the_l2(self) -> None:
        stream = Stream()
        stream.free_bytes = 3 * MIB
        timer = timer_on(stream, l2_bytes=8 * MIB)
        assert reading(timer, stream) == ("cold", "")
        assert stream.reserved == 2 * MIB
        assert set(stream.flushes) == {2 * MIB}

    def test_it_stays_so_even_if_there_is_memory_later(self) -> None:
        stream = Stream()
        stream.free_bytes = 0
        timer = timer_on(stream)
        reading(timer, stream)
        timer.release()
        stream.free_bytes = 1 << 40
        assert reading(timer, stream)[0] == "warm"

    def test_with_memory_nothing_changes(self) -> None:
        stream = Stream()
        assert reading(timer_on(stream), stream) == ("cold", "")

    def test_a_bench_with_a_room_takes_it_at_once_and_gives_it_back_at_the_end(self) -> None:
        stream = Stream()
        bench = LocalBench(None, timer_on(stream), room=DeviceRoom())  # type: ignore[arg-type]
        assert stream.reserved == MIB
        bench.close()
        assert stream.reserved == 0

    def test_the_limit_holds_for_the_buffer_too(self) -> None:
        stream = Stream()
        timer = timer_on(stream)
        LocalBench(None, timer, room=DeviceRoom(MIB - 1))  # type: ignore[arg-type]
        assert (timer.l2, stream.reserved) == ("warm", 0)

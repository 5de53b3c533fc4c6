"""A simulated stream: what is queued runs in order, and all takes a known time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from whet.measure import Runnable
from whet.measure.gpu.nvml import Health

US = 1_000
MS = 1_000_000


class OutOfMemoryError(RuntimeError):
    """What torch raises, by name."""


class Stream:
    """A `CudaApi`: what is queued runs in order, and none before the host has queued it."""

    clock_khz = 2_000_000
    fresh = False

    def __init__(self, host_ns: float = 2 * US, flush_ns: float = 20 * US) -> None:
        self.l2_bytes = 1 << 20
        self.host_ns = host_ns
        self.flush_ns = flush_ns
        self.flushes: list[int] = []
        self.moves = 0
        self.sleeps: list[float] = []
        self.most_queued = 0
        self.slowness = 1.0
        self.said = Health()
        self.released = 0
        self.free_bytes = 1 << 40
        self.reserved = 0
        self.captures = 0
        self._now = 0.0
        self._ends: list[float] = []

    def current(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def clock(self) -> int:
        return round(self._now)

    def event(self) -> Event:
        return Event(self)

    def sleep(self, cycles: int) -> None:
        self.sleeps.append(cycles / self.clock_khz * 1e6)
        self.queue(self.sleeps[-1] * self.slowness)

    def fill(self) -> None:
        self.queue(1 * US)

    def captured(self, run: Runnable) -> Callable[[int], object]:
        self.captures += 1
        return run.repeat

    def reserve(self, size: int) -> None:
        if size > self.free_bytes:
            raise OutOfMemoryError("CUDA out of memory")
        self.reserved = size

    def health(self) -> Health:
        return self.said

    def release(self) -> None:
        self.released += 1
        self.reserved = 0

    def flush(self, size: int) -> None:
        if size:
            self.flushes.append(size)
            self.queue(self.flush_ns)
        else:
            self.moves += 1

    def synchronize(self) -> None:
        self._now = max([self._now, *self._ends[-1:]])

    def on_host(self, ns: float) -> None:
        """The host is busy for `ns` and queues nothing."""
        self._now += ns

    def queue(self, ns: float) -> float:
        """One operation of `ns` on the device; returns when it ends there."""
        self.on_host(self.host_ns)
        self._ends = [end for end in self._ends if end > self._now]
        self._ends.append(max([self._now, *self._ends[-1:]]) + ns)
        self.most_queued = max(self.most_queued, len(self._ends))
        return self._ends[-1]

    def has_reached(self, moment: float) -> bool:
        return moment <= self._now


class Event:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._moment = 0.0

    def record(self) -> None:
        self._moment = self._stream.queue(0)

    def query(self) -> bool:
        return self._stream.has_reached(self._moment)

    def elapsed_ms(self, end: Event) -> float:
        assert self.query(), "not completed yet"
        assert end.query(), "not completed yet"
        return (end._moment - self._moment) / MS


class QueuedKernel:
    """Takes `ns` on the device, after `launch_ns` on the host; its first launches as told."""

    def __init__(
        self,
        stream: Stream,
        ns: float,
        launch_ns: float = 30 * US,
        first_launches_ns: tuple[float, ...] = (),
    ) -> None:
        self.stream = stream
        self.ns = ns
        self.launch_ns = launch_ns
        self.launches = 0
        self._first_launches_ns = list(first_launches_ns)

    def repeat(self, n: int) -> None:
        for _ in range(n):
            self.launches += 1
            slow = self._first_launches_ns.pop(0) if self._first_launches_ns else 0.0
            self.stream.on_host(max(slow, self.launch_ns))
            self.stream.queue(self.ns)


class HookedKernel(QueuedKernel):
    """Keeps a record of what ran in which order."""

    def __init__(
        self,
        stream: Stream,
        ns: float,
        before: Callable[[], object] = lambda: None,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(stream, ns)
        self.order: list[str] = []
        self._hooks = {"before": before, "after": after}

    def before(self) -> None:
        self.order.append("before")
        self._hooks["before"]()

    def repeat(self, n: int) -> None:
        self.order.append("launch")
        super().repeat(n)

    def after(self) -> None:
        self.order.append("after")
        self._hooks["after"]()


class Cached(QueuedKernel):
    """Twice as slow where the L2 was flushed since the last launch."""

    def repeat(self, n: int) -> None:
        warm_ns = self.ns
        self.ns *= 2 if self.stream.flushes else 1
        super().repeat(n)
        self.ns = warm_ns
        self.stream.flushes.clear()

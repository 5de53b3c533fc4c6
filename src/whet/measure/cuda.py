"""The timer of kernels that run on a GPU.

A launch costs the host more than many a kernel lasts, so events around kernels that are launched
one by one time the host. Here the device sleeps while everything that is to be timed is queued,
and an event after the sleep tells whether the device woke too early.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from whet.core.errors import UsageError
from whet.core.timing import L2, Quality
from whet.measure.timer import Reading, Runnable, Warm

STEADY_WITHIN = 0.03
MAX_RETRIES = 3

# A kernel slower than this is launched once in warm-up.
SLOW_NS = 20e6
WARMUP_NS = 10_000_000
WARM_BATCH = 3
WARM_BATCH_NS = 1e6

# How much is queued at once. The launch queue holds about a thousand operations; beyond the other
# two a batch that has to be thrown away would be too much of a loss.
QUEUED_OPERATIONS = 200
BATCH_NS = 20e6
BATCH_SLEEP_NS = 10e6

# What one execution queues at most: a hook a few fills or copies, a flush or a launch a fill first.
_HOOK_OPERATIONS = 4
_FLUSH_OPERATIONS = 2
_LAUNCH_OPERATIONS = 2
_EVENT_OPERATIONS = 2

SLEEP_FLOOR_NS = 50e3
SLEEP_MARGIN = 1.5
MAX_SLEEP_NS = 100e6
UNKNOWN_HOST_NS = 100e3

# The host's part of a very first launch is mostly loading, which will not come again.
FIRST_HOST_NS = 5e6

# No GPU has a faster clock: where the clock is unknown, a sleep is rather too long.
FASTEST_CLOCK_KHZ = 3_000_000


class CudaEvent(Protocol):
    def record(self) -> None: ...

    def query(self) -> bool:
        """True once all that was queued before it has ended."""

    def elapsed_ms(self, end: Any) -> float:
        """From this event to `end`, an event of the same kind; both have completed."""


class CudaApi(Protocol):
    """All that the timer asks of a device. Work is queued on the current stream."""

    @property
    def clock_khz(self) -> int:
        """The fastest that the clock which `sleep` counts can run."""

    @property
    def l2_bytes(self) -> int: ...

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Makes this device the current one."""

    def clock(self) -> int:
        """The host's monotonic nanoseconds."""

    def event(self) -> CudaEvent: ...

    def sleep(self, cycles: int) -> None:
        """Queues a kernel that does nothing for so many cycles."""

    def flush(self, size: int) -> None:
        """Queues a read of `size` bytes: they replace what is in the L2 and leave it clean."""

    def synchronize(self) -> None: ...


@dataclass(frozen=True)
class CudaWarm(Warm):
    """`host_ns` is what queueing one execution costs the host. `queues` is False where the queue
    ran dry however long the device slept, as it does when a hook waits for the device.
    """

    host_ns: float = UNKNOWN_HOST_NS
    queues: bool = True


class CudaTimer:
    """Time on the device between two events around each launch, read off a queue that was full.

    `repeat(1)` launches the kernel on the current stream and does not wait for it. The runnable
    may have `before()` and `after()`, which run around every single execution and are not timed.
    A batch whose queue may have run dry is thrown away and taken again with a sleep twice as
    long, up to three times; after that launches are timed one by one and the reading is marked
    `host_bound`.

    The L2 is flushed before each launch by reading as many bytes as it holds, or `l2_bytes`; with
    0 it stays warm. `overhead_ns` is what two events read around nothing, and is subtracted.
    """

    name = "cuda"

    def __init__(
        self,
        api: CudaApi | None = None,
        *,
        device: int | None = None,
        l2_bytes: int | None = None,
        overhead_ns: float = 0.0,
        warmup_ns: int = WARMUP_NS,
    ) -> None:
        self.overhead_ns = overhead_ns
        self._api = TorchCuda(device) if api is None else api
        self._flush_bytes = self._api.l2_bytes if l2_bytes is None else l2_bytes
        self._l2: L2 = "cold" if self._flush_bytes else "warm"
        self._warmup_ns = warmup_ns
        self._gate = self._api.event()
        self._pairs: list[tuple[CudaEvent, CudaEvent]] = []

    def warm(self, run: Runnable) -> Warm:
        with self._api.current():
            return self._warm(_Execution(run))

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        if not isinstance(warm, CudaWarm):
            warm = CudaWarm(warm.loops, warm.estimate_ns, warm.seconds)
        execution = _Execution(run)
        attempts = 1 + MAX_RETRIES if warm.queues else 1
        taken: list[float] = []
        discarded = 0
        quality: Quality = "clean"
        with self._api.current():
            while len(taken) < samples and quality == "clean":
                count = min(samples - len(taken), self._most(execution, warm))
                batch, thrown = self._filled(execution, count, warm.host_ns, attempts)
                discarded += thrown
                if batch is None:
                    quality = "host_bound"
                else:
                    taken.extend(batch.samples)
            while len(taken) < samples:
                taken.extend(self._queue(execution, 1).samples)
        return Reading(tuple(taken), 1, self.name, self._l2, quality, discarded)

    def _warm(self, execution: _Execution) -> CudaWarm:
        start = self._api.clock()
        first = self._queue(execution, 1)
        began = self._api.clock()
        # Without a sleep the events also time the host, which may have loaded the kernel.
        estimate = first.mean_ns - first.host_ns
        if estimate > SLOW_NS:
            host_ns = min(first.host_ns, FIRST_HOST_NS)
            return CudaWarm(1, estimate, (began - start) / 1e9, host_ns=host_ns)
        lone = self._queue(execution, 1)
        estimate, host_ns, queues = lone.mean_ns, lone.host_ns, True
        last: float | None = None
        while True:
            count = max(1, min(WARM_BATCH, int(WARM_BATCH_NS / estimate)))
            batch, _ = self._filled(execution, count, host_ns, 1 + MAX_RETRIES)
            if batch is None:
                queues = False
                break
            estimate, host_ns = batch.mean_ns, batch.host_ns
            steady = last is not None and abs(estimate - last) <= STEADY_WITHIN * last
            if steady or self._api.clock() - began >= self._warmup_ns:
                break
            last = estimate
        seconds = (self._api.clock() - start) / 1e9
        return CudaWarm(1, estimate, seconds, host_ns=host_ns, queues=queues)

    def _most(self, execution: _Execution, warm: CudaWarm) -> int:
        """How many samples one batch may hold."""
        operations = execution.operations + (_FLUSH_OPERATIONS if self._flush_bytes else 0)
        by_time = BATCH_NS / max(1.0, warm.estimate_ns)
        by_sleep = BATCH_SLEEP_NS / max(1.0, SLEEP_MARGIN * warm.host_ns)
        return max(1, min(QUEUED_OPERATIONS // operations, int(by_time), int(by_sleep)))

    def _filled(
        self, execution: _Execution, count: int, host_ns: float, attempts: int
    ) -> tuple[_Batch | None, int]:
        """A batch whose queue never ran dry, if there was one, and how many samples it cost."""
        sleep_ns = SLEEP_FLOOR_NS + SLEEP_MARGIN * host_ns * count
        if sleep_ns > MAX_SLEEP_NS:
            return None, 0
        for attempt in range(attempts):
            batch = self._queue(execution, count, sleep_ns)
            if not batch.dry:
                return batch, attempt * count
            sleep_ns *= 2
        return None, attempts * count

    def _queue(self, execution: _Execution, count: int, sleep_ns: float = 0.0) -> _Batch:
        api, flush_bytes = self._api, self._flush_bytes
        while len(self._pairs) < count:
            self._pairs.append((api.event(), api.event()))
        pairs = self._pairs[:count]
        api.synchronize()
        if sleep_ns:
            api.sleep(round(sleep_ns * api.clock_khz / 1e6))
        self._gate.record()
        began = api.clock()
        for start, end in pairs:
            execution.before()
            if flush_bytes:
                api.flush(flush_bytes)
            start.record()
            execution.launch(1)
            end.record()
            execution.after()
        dry = self._gate.query()
        host_ns = (api.clock() - began) / count
        api.synchronize()
        samples = tuple(self._sample_ns(start, end) for start, end in pairs)
        return _Batch(samples, host_ns, dry)

    def _sample_ns(self, start: CudaEvent, end: CudaEvent) -> float:
        # Events that read nothing at all would have no logarithm.
        raw = max(1.0, start.elapsed_ms(end) * 1e6)
        return max(raw - self.overhead_ns, raw / 10)


@dataclass(frozen=True)
class _Batch:
    """`dry`: the device may have waited for the host, and the samples may contain that."""

    samples: tuple[float, ...]
    host_ns: float
    dry: bool

    @property
    def mean_ns(self) -> float:
        return sum(self.samples) / len(self.samples)


class _Execution:
    """One launch with what belongs around it."""

    def __init__(self, run: Runnable) -> None:
        hooks = [getattr(run, name, None) for name in ("before", "after")]
        self.launch = run.repeat
        self.before: Callable[[], object] = hooks[0] or _nothing
        self.after: Callable[[], object] = hooks[1] or _nothing
        self.operations = _LAUNCH_OPERATIONS + _EVENT_OPERATIONS
        self.operations += _HOOK_OPERATIONS * sum(hook is not None for hook in hooks)


def _nothing() -> None:
    pass


class TorchCuda:
    """A device as torch knows it, CUDA or HIP; without an index, the current one."""

    def __init__(self, device: int | None = None) -> None:
        self._torch = _torch()
        self._cuda: Any = self._torch.cuda
        self._device: int = self._cuda.current_device() if device is None else device
        properties = self._cuda.get_device_properties(self._device)
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0))
        self.clock_khz = _sleep_clock_khz(properties)
        self._buffers: dict[int, tuple[Any, Any]] = {}

    def current(self) -> contextlib.AbstractContextManager[object]:
        context: contextlib.AbstractContextManager[object] = self._cuda.device(self._device)
        return context

    def clock(self) -> int:
        return time.perf_counter_ns()

    def event(self) -> CudaEvent:
        return _TorchEvent(self._cuda.Event(enable_timing=True))

    def sleep(self, cycles: int) -> None:
        self._cuda._sleep(cycles)

    def flush(self, size: int) -> None:
        if size not in self._buffers:
            self._buffers[size] = self._allocated(size)
        read, total = self._buffers[size]
        self._torch.sum(read, dim=0, out=total)

    def synchronize(self) -> None:
        self._cuda.synchronize(self._device)

    def _allocated(self, size: int) -> tuple[Any, Any]:
        torch = self._torch
        # A tensor made in inference mode could not be written outside of it.
        with torch.inference_mode(False):
            place = {"dtype": torch.float32, "device": torch.device("cuda", self._device)}
            return torch.zeros(max(1, size // 4), **place), torch.zeros((), **place)


class _TorchEvent:
    def __init__(self, event: Any) -> None:
        self._event = event
        self.record: Callable[[], None] = event.record
        self.query: Callable[[], bool] = event.query

    def elapsed_ms(self, end: _TorchEvent) -> float:
        return float(self._event.elapsed_time(end._event))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError(
            "timing on a GPU needs torch, which is not installed: pip install torch"
        ) from None
    if not torch.cuda.is_available():
        raise UsageError("timing on a GPU needs a device, and torch sees none: check its driver")
    return torch


def _sleep_clock_khz(properties: Any) -> int:
    # On these torch's sleep counts a constant clock of 100 MHz.
    if str(getattr(properties, "gcnArchName", "")).startswith("gfx11"):
        return 100_000
    return int(getattr(properties, "clock_rate", 0)) or FASTEST_CLOCK_KHZ

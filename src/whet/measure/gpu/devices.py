"""A GPU as the CUDA timer sees it: by torch, or by the driver alone."""

from __future__ import annotations

import contextlib
import ctypes
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from whet.core.errors import ConfigFailure, UsageError
from whet.core.status import Status
from whet.measure.gpu import driver as cuda_driver
from whet.measure.gpu.clearing import PTX, Clearing
from whet.measure.gpu.driver import CudaDriver, CudaError, Parameters, compiles_ptx, driver_on, word
from whet.measure.gpu.nvml import Health, Nvml
from whet.measure.timer import Runnable
from whet.workers.stages import stage

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

    @property
    def fresh(self) -> bool:
        """Whether what `flush` queues leaves nothing in the multiprocessors of kernels before."""

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Makes this device the current one; events are recorded only inside."""

    def clock(self) -> int:
        """The host's monotonic nanoseconds."""

    def event(self) -> CudaEvent: ...

    def sleep(self, cycles: int) -> None:
        """Queues a kernel that does nothing for so many cycles."""

    def fill(self) -> None:
        """Queues a kernel that writes a few bytes."""

    def flush(self, size: int) -> None:
        """Queues a read of `size` bytes: they replace what is in the L2 and leave it clean. Where
        `fresh`, what the multiprocessors hold of kernels' code is replaced with it, and the next
        grid begins in another place, which is all that happens with a size of 0."""

    def reserve(self, size: int) -> None:
        """Allocates what `flush` of that size reads, unless it is there."""

    def captured(self, run: Runnable) -> Callable[[int], object]:
        """One launch as a graph; the result replays it."""

    def synchronize(self) -> None: ...

    def health(self) -> Health:
        """What the driver says of the device, nothing where it says nothing."""

    def release(self) -> None:
        """Gives back the memory that flushes read."""


class TorchCuda:
    """A device as torch knows it, CUDA or HIP; without an index, the current one."""

    def __init__(self, device: int | None = None) -> None:
        self._torch = _torch()
        self._cuda: Any = self._torch.cuda
        self._device: int = self._cuda.current_device() if device is None else device
        properties = self._cuda.get_device_properties(self._device)
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0))
        self.clock_khz = _sleep_clock_khz(properties)
        nvidia = not self._torch.version.hip
        self.fresh = nvidia and compiles_ptx()
        self._nvml = Nvml.find(_bus_id(properties)) if nvidia else None
        self._stream: Any = None
        self._buffers: dict[int, tuple[Any, Any]] = {}
        self._clearing: Clearing | None = None
        self._target: Any = None
        self._readings: dict[int, Parameters] = {}

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        with self._cuda.device(self._device):
            # Looked up once: an event that has to ask for the stream takes 12 µs to record.
            self._stream = self._cuda.current_stream()
            yield

    def clock(self) -> int:
        return time.perf_counter_ns()

    def event(self) -> CudaEvent:
        return _TorchEvent(self, self._cuda.Event(enable_timing=True))

    @property
    def stream(self) -> Any:
        return self._stream

    def sleep(self, cycles: int) -> None:
        self._cuda._sleep(cycles)

    def fill(self) -> None:
        self._buffer(4)[1].zero_()

    def flush(self, size: int) -> None:
        if self.fresh and (self._clearing is None or (size and size not in self._readings)):
            self._prepare_clearing(size)
        if self._clearing is not None and size:
            self._clearing.clear(self._readings[size], self._stream.cuda_stream)
        elif self._clearing is not None:
            self._clearing.move(self._stream.cuda_stream)
        elif size:
            read, total = self._buffer(size)
            self._torch.sum(read, dim=0, out=total)

    def reserve(self, size: int) -> None:
        self._buffer(size)

    def captured(self, run: Runnable) -> Callable[[int], object]:
        graph = self._cuda.CUDAGraph()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with self._other_random_state(), self._cuda.graph(graph):
                run.repeat(1)
        if any("Graph is empty" in str(one.message) for one in said):
            raise ConfigFailure(
                Status.RUN_ERROR,
                "a CUDA graph of it is empty, since it launches nothing on the current stream: "
                "launch on torch.cuda.current_stream(), or time it without graphs",
            )

        def replay(n: int) -> None:
            for _ in range(n):
                graph.replay()

        return replay

    @contextlib.contextmanager
    def _other_random_state(self) -> Iterator[None]:
        """A capture that fails leaves torch's random state capturing for good: no tensor could be
        filled with random numbers any more."""
        generator = self._cuda.default_generators[self._device]
        own = generator.graphsafe_get_state()
        generator.graphsafe_set_state(generator.clone_state())
        try:
            yield
        finally:
            generator.graphsafe_set_state(own)

    def synchronize(self) -> None:
        self._cuda.synchronize(self._device)

    def health(self) -> Health:
        return Health() if self._nvml is None else self._nvml.health()

    def release(self) -> None:
        self._readings.clear()
        self._buffers.clear()

    def _prepare_clearing(self, size: int) -> None:
        """Not before the first flush: the driver compiles for a fifth of a second, which by then
        passes while other configs are being built."""
        read, total = self._buffer(size)
        try:
            if self._clearing is None:
                self._target = total
                self._clearing = Clearing(driver_on(self._device), total.data_ptr())
        except CudaError as error:
            self.fresh = False
            warnings.warn(
                f"torch flushes the L2, because whet's own kernels do not load ({error}): "
                "timings are named 'cuda', and a process that expects 'cuda+fresh' will not "
                "use them; set CUDA_DISABLE_PTX_JIT=1 so that all processes agree",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        if size:
            self._readings[size] = self._clearing.reading(read.data_ptr(), size)

    def _buffer(self, size: int) -> tuple[Any, Any]:
        if size not in self._buffers:
            torch = self._torch
            # A tensor made in inference mode could not be written outside of it.
            with torch.inference_mode(False):
                place = {"dtype": torch.float32, "device": torch.device("cuda", self._device)}
                self._buffers[size] = (
                    torch.zeros(max(1, size // 4), **place),
                    torch.zeros((), **place),
                )
        return self._buffers[size]


class _TorchEvent:
    def __init__(self, api: TorchCuda, event: Any) -> None:
        self._api = api
        self._event = event
        self.query: Callable[[], bool] = event.query

    def record(self) -> None:
        self._event.record(self._api.stream)

    def elapsed_ms(self, end: _TorchEvent) -> float:
        return float(self._event.elapsed_time(end._event))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError("timing on a GPU needs torch: pip install torch") from None
    if not torch.cuda.is_available():
        raise UsageError("timing on a GPU needs a device, but torch sees none; check the driver")
    return torch


def _bus_id(properties: Any) -> str:
    domain, bus, device = (
        int(getattr(properties, f"pci_{part}_id", 0)) for part in ("domain", "bus", "device")
    )
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"


def _sleep_clock_khz(properties: Any) -> int:
    # On these torch's sleep counts a constant clock of 100 MHz.
    if str(getattr(properties, "gcnArchName", "")).startswith("gfx11"):
        return 100_000
    return int(getattr(properties, "clock_rate", 0)) or FASTEST_CLOCK_KHZ


_FILLED_BYTES = 16


class DriverCuda:
    """To the timer what `TorchCuda` is, by calls of the driver alone; it replays no graphs."""

    fresh = True

    def __init__(self, device: int) -> None:
        self._driver: CudaDriver = driver_on(device)
        driver = self._driver
        self.l2_bytes = driver.attribute(cuda_driver.L2_BYTES)
        self.clock_khz = driver.attribute(cuda_driver.CLOCK_KHZ) or FASTEST_CLOCK_KHZ
        with stage("kernels"):
            module = driver.module(PTX)
            self._sleep = driver.function(module, "whet_sleep")
            self._fill = driver.function(module, "whet_fill")
        self._target = driver.allocate(_FILLED_BYTES)
        self._cycles = Parameters([b""])
        self._filled = Parameters([word(self._target)])
        self._clearing: Clearing | None = None
        self._read: dict[int, int] = {}
        self._readings: dict[int, Parameters] = {}
        with stage("nvml"):
            self._nvml = Nvml.find(driver.bus_id())

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """It is current in this thread since the driver was opened, and no other is used."""
        yield

    def clock(self) -> int:
        return time.perf_counter_ns()

    def event(self) -> CudaEvent:
        return _DriverEvent(self._driver)

    def sleep(self, cycles: int) -> None:
        self._cycles.set(0, word(cycles))
        self._driver.launch(self._sleep, (1, 1, 1), 1, 0, self._cycles)

    def fill(self) -> None:
        self._driver.launch(self._fill, (1, 1, 1), 1, 0, self._filled)

    def flush(self, size: int) -> None:
        if self._clearing is None:
            self._clearing = Clearing(self._driver, self._target)
        if not size:
            self._clearing.move()
            return
        if size not in self._readings:
            self.reserve(size)
            self._readings[size] = self._clearing.reading(self._read[size], size)
        self._clearing.clear(self._readings[size])

    def reserve(self, size: int) -> None:
        if size not in self._read:
            self._read[size] = self._driver.allocate(size)
            self._driver.clear(self._read[size], size)

    def captured(self, run: Runnable) -> Callable[[int], object]:
        raise NotImplementedError("CUDA graphs need torch")

    def synchronize(self) -> None:
        self._driver.synchronize()

    def health(self) -> Health:
        return Health() if self._nvml is None else self._nvml.health()

    def release(self) -> None:
        read, self._read, self._readings = self._read, {}, {}
        for address in read.values():
            self._driver.free(address)


class _DriverEvent:
    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._event = driver.event()
        self._record: Any = driver.library.cuEventRecord
        self._query: Any = driver.library.cuEventQuery

    def record(self) -> None:
        if code := self._record(self._event, None):
            raise self._driver.error(code, "cuEventRecord")

    def query(self) -> bool:
        code = self._query(self._event)
        if code not in (0, cuda_driver.NOT_READY):
            raise self._driver.error(code, "cuEventQuery")
        return bool(code == 0)

    def elapsed_ms(self, end: _DriverEvent) -> float:
        ms = ctypes.c_float()
        self._driver.check("cuEventElapsedTime", ctypes.byref(ms), self._event, end._event)
        return float(ms.value)

    def __del__(self) -> None:
        self._driver.library.cuEventDestroy_v2(self._event)

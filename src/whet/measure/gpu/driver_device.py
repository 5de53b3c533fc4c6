"""A GPU as the CUDA timer sees it, without torch."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

from whet.measure.gpu import driver as cuda_driver
from whet.measure.gpu.clearing import Clearing
from whet.measure.gpu.driver import CudaDriver, Parameters, driver_on, word
from whet.measure.gpu.nvml import Health, Nvml
from whet.measure.gpu.ptx import PTX
from whet.measure.gpu.torch_device import FASTEST_CLOCK_KHZ, CudaEvent
from whet.measure.timer import Runnable
from whet.workers.stages import stage

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

"""A Triton driver without a device: kernels are really compiled, and launches are written down.

    with fake_driver() as driver:
        kernel[grid](x, y, n)
        driver.launches          # names and grids, in order

`told(times)` is a timer that reads what it was told, so that a whole tuning can be followed on a
machine with no GPU: `kernel.whet_timer = told(lambda config: …)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from whet.measure.timer import Reading, Runnable, Timer, Warm, run_once


class FakeDtype(str):
    """Triton goes by the text of a dtype, as torch's reads: `torch.float32`. It equals torch's."""

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, str(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class FakeNumbers(np.ndarray[Any, Any]):
    """An array with the few of torch's methods that comparing two tensors takes."""

    def abs(self) -> Any:
        return np.abs(self)

    def isnan(self) -> Any:
        return np.isnan(self)

    def numel(self) -> int:
        return self.size

    def nonzero(self) -> Any:
        return np.flatnonzero(np.asarray(self))


class FakeTensor:
    """A pointer with a dtype and a few numbers, for kernels that are never really launched."""

    device = "fake:0"

    def __init__(
        self, values: Sequence[float], dtype: str = "float32", address: int = 4096
    ) -> None:
        self.values = list(values)
        self.dtype = FakeDtype(f"torch.{dtype}")
        self._address = address

    def data_ptr(self) -> int:
        return self._address

    def clone(self) -> FakeTensor:
        return FakeTensor(self.values, self.dtype.removeprefix("torch."), self._address)

    def copy_(self, other: FakeTensor) -> None:
        self.values = list(other.values)

    def zero_(self) -> None:
        self.values = [0.0] * len(self.values)

    def to(self, device: str) -> FakeTensor:
        return self

    def double(self) -> FakeNumbers:
        return np.asarray(self.values, np.float64).view(FakeNumbers)


class FakeUtils:
    def __init__(self, shared_bytes: int) -> None:
        self._shared_bytes = shared_bytes

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {
            "max_shared_mem": self._shared_bytes,
            "max_num_regs": 65536,
            "multiprocessor_count": 132,
            "warpSize": 32,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 6144,
        }

    def load_binary(self, name: str, binary: Any, shared: int, device: int) -> tuple[Any, ...]:
        # No module: kernels outlive the fake driver, and nobody else could unload theirs.
        return None, object(), 32, 0, 1024


class FakeDriver:
    """Enough of Triton's `GPUDriver` for `JITFunction.run` and `CompiledKernel`."""

    def __init__(self, target: Any, shared_bytes: int) -> None:
        self._target = target
        self.utils = FakeUtils(shared_bytes)
        self.device = 0
        self.launches: list[tuple[str, tuple[int, int, int]]] = []
        self.on_launch: Callable[[str, tuple[Any, ...]], None] | None = None

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return self.device

    def set_current_device(self, device: int) -> None:
        self.device = device

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_benchmarker(self) -> Callable[..., list[float]]:
        def benchmark(call: Callable[[], None], quantiles: Any = None) -> list[float]:
            call()
            return [1.0, 1.0, 1.0]

        return benchmark

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        def launch(x: int, y: int, z: int, *rest: Any) -> None:
            self.launches.append((metadata.name, (x, y, z)))
            if self.on_launch is not None:
                self.on_launch(metadata.name, rest[6:])

        return launch


@contextmanager
def fake_driver(arch: Any = 90, shared_bytes: int = 232_448) -> Iterator[FakeDriver]:
    """Triton believes in an H200 (or `arch`) until the block ends."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import compiler
    from triton.runtime.driver import driver

    from whet.targets.triton import device

    backend, warp = ("hip", 64) if isinstance(arch, str) else ("cuda", 32)
    fake = FakeDriver(GPUTarget(backend, arch, warp), shared_bytes)
    before = driver._active
    driver.set_active(fake)
    for cached in (device.describe, compiler.max_shared_mem):
        cached.cache_clear()
    try:
        yield fake
    finally:
        driver._active = before
        for cached in (device.describe, compiler.max_shared_mem):
            cached.cache_clear()


class ToldTimer(Timer):
    """Runs every kernel for real, hooks included, and reads off what it was told."""

    name = "told"
    primed_below_ns = 0.0  # what it reads does not depend on what ran before

    def __init__(self, times: Callable[[Any], float]) -> None:
        self._times = times

    def warm(self, run: Runnable) -> Warm:
        run_once(run)
        return Warm(1, 1000.0, 0.0)

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        for _ in range(samples):
            run_once(run)
        config = getattr(run, "config", None)
        return Reading((self._times(config),) * samples, 1, self.name)


def told(times: Callable[[Any], float]) -> Callable[[], Timer]:
    """For `autotuner.whet_timer = told(lambda config: …)`, with nanoseconds by Triton config."""
    return lambda: ToldTimer(times)

"""Timers that call a kernel exactly as often as they are told: one call is one sample."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from whet.autotuner.devices import cuda_device
from whet.measure import Reading, Runnable, Timer, Warm


class HostTimer:
    """Wall time of each call by a monotonic clock."""

    name = "host-calls"

    def __init__(self, warmup_runs: int) -> None:
        self._warmup_runs = warmup_runs

    def warm(self, run: Runnable) -> Warm:
        return _warm(run, self._warmup_runs)

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        taken: list[float] = []
        for _ in range(samples):
            start = time.perf_counter_ns()
            run.repeat(1)
            taken.append(float(time.perf_counter_ns() - start))
        return Reading(tuple(taken), loops=1, timer=self.name)


class CudaEventTimer:
    """Time on the device between two CUDA events around each call.

    Calls are queued without waiting in between, so that the host's work hides behind the
    kernel's; a kernel that is shorter than its own launch reads as the launch. Nothing flushes
    the L2 cache. The kernel is expected on the current stream of `device`.
    """

    name = "cuda-event-calls"

    def __init__(self, warmup_runs: int, device: Any) -> None:
        self._warmup_runs = warmup_runs
        self._device = device
        self._cuda: Any = sys.modules["torch"].cuda

    def warm(self, run: Runnable) -> Warm:
        with self._cuda.device(self._device):
            warm = _warm(run, self._warmup_runs)
            self._cuda.synchronize()
        return warm

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        with self._cuda.device(self._device):
            pairs = [(self._event(), self._event()) for _ in range(samples)]
            self._cuda.synchronize()
            for start, end in pairs:
                start.record()
                run.repeat(1)
                end.record()
            self._cuda.synchronize()
        taken = tuple(start.elapsed_time(end) * 1e6 for start, end in pairs)
        return Reading(taken, loops=1, timer=self.name, l2="warm")

    def _event(self) -> Any:
        return self._cuda.Event(enable_timing=True)


def choose_timer(
    warmup_runs: int, device: str | None, args: Iterable[Any], kwargs: Mapping[str, Any]
) -> Timer:
    """CUDA events where the callable runs on a GPU, else the host's clock."""
    found = cuda_device(device, [*args, *kwargs.values()])
    return HostTimer(warmup_runs) if found is None else CudaEventTimer(warmup_runs, found)


def _warm(run: Runnable, runs: int) -> Warm:
    start = time.perf_counter_ns()
    for _ in range(runs):
        run.repeat(1)
    spent = time.perf_counter_ns() - start
    return Warm(loops=1, estimate_ns=spent / max(1, runs), seconds=spent / 1e9)

"""The CUDA timer on a real device."""

from __future__ import annotations

import math
from typing import Any

import pytest

from whet.core.timing import median
from whet.measure import Reading, Runnable
from whet.measure.gpu.timer import CudaTimer

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


class Product:
    """`rows × size` times `size × size`, into memory of its own."""

    def __init__(self, torch: Any, rows: int, size: int) -> None:
        self._mm = torch.mm
        self._left = torch.randn(rows, size, device="cuda", dtype=torch.float16)
        self._right = torch.randn(size, size, device="cuda", dtype=torch.float16)
        self._out = torch.empty(rows, size, device="cuda", dtype=torch.float16)

    def repeat(self, n: int) -> None:
        for _ in range(n):
            self._mm(self._left, self._right, out=self._out)


def read(timer: CudaTimer, run: Runnable, samples: int = 31) -> Reading:
    return timer.measure(run, samples, timer.warm(run))


def graph_ns(torch: Any, run: Runnable, launches: int = 50) -> float:
    """One launch among many in a replayed graph, where the host has no part."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run.repeat(launches)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    for _ in range(5):
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e6 / launches)
    return median(times)


@pytest.mark.parametrize("size", [1024, 4096])
def test_a_reading_agrees_with_a_replayed_graph(torch: Any, size: int) -> None:
    run = Product(torch, size, size)
    reading = read(CudaTimer(l2_bytes=0), run)
    assert reading.quality == "clean"
    assert 0.6 < median(reading.samples) / graph_ns(torch, run) < 1.8


def test_a_cold_l2_is_no_faster_than_a_warm_one(torch: Any) -> None:
    """The product reads a matrix that fits into the L2 and does little else."""
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    run = Product(torch, 1, math.isqrt(l2_bytes // 8))
    cold, warm = read(CudaTimer(), run), read(CudaTimer(l2_bytes=0), run)
    assert (cold.l2, warm.l2) == ("cold", "warm")
    assert (cold.quality, warm.quality) == ("clean", "clean")
    assert median(cold.samples) >= median(warm.samples)


def test_hooks_are_not_timed(torch: Any) -> None:
    class Restored(Product):
        after = None

        def before(self) -> None:
            for _ in range(3):
                self._mm(self._right, self._right)

    bare, hooked = Product(torch, 16, 4096), Restored(torch, 16, 4096)
    times = [median(read(CudaTimer(), run).samples) for run in (bare, hooked)]
    assert times[1] < 2 * times[0]


def test_a_hook_that_waits_for_the_device_is_noticed(torch: Any) -> None:
    class Waiting(Product):
        before = None

        def after(self) -> None:
            torch.cuda.synchronize()

    assert read(CudaTimer(), Waiting(torch, 256, 256), 3).quality == "host_bound"

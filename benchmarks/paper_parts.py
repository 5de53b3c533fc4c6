"""Parts of `cost_paper.py` that run on the device, in a process of their own.

    python benchmarks/paper_parts.py PART --configs 3,7 --seconds 15 --out FILE

Each goes through the suite's sizes, evenly spread, until its time is over, and says how many it
came to.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cold import Notes
from launching import Repeated
from problems import PAPER_SIZES, Size, problem
from sides import clear_as

STOCK_MS = 100
WHET_MS = 20
ESTIMATE_SIZES = 16

# The profiler's time is for so many, whatever the limit.
LEAST_SIZES = 4

# 27 and 64 have no common divisor, so that the first few sizes are of every kind.
SPREAD = 27


def spread_sizes() -> Iterator[Size]:
    return (PAPER_SIZES[(SPREAD * place) % len(PAPER_SIZES)] for place in range(len(PAPER_SIZES)))


def launches(configs: list[int]) -> Iterator[tuple[Size, list[Callable[[], Any]]]]:
    """Size by size, the configs' launches, compiled already."""
    asked = problem("gemm:0")
    bind = asked.bind()
    for size in spread_sizes():
        call = bind(size)
        ready = [call.launcher(asked.configs[index]) for index in configs]
        for launch in ready:
            launch()
        yield size, ready


def total(configs: list[int], end: float, notes: Notes) -> None:
    """What stock's benchmark takes the host, config by config."""
    import triton

    rows: list[dict[str, Any]] = []
    for size, ready in launches(configs):
        start = time.perf_counter()
        for launch in ready:
            triton.testing.do_bench(launch, quantiles=(0.5, 0.2, 0.8))
        rows.append({"size": size, "s": time.perf_counter() - start, "benches": len(ready)})
        notes.write({"sizes": rows})
        if time.perf_counter() > end:
            break


def gpu_time(configs: list[int], end: float, notes: Notes) -> None:
    """What the device spends in the product and in clearing, by the profiler of torch."""
    import triton
    from torch.profiler import ProfilerActivity, profile

    rows: list[dict[str, Any]] = []
    for size, ready in launches(configs):
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for launch in ready:
                triton.testing.do_bench(launch, quantiles=(0.5, 0.2, 0.8))
        taken: dict[str, list[float]] = {"product": [], "clearing": [], "other": []}
        for name, microseconds in _kernels(profiled):
            taken[_kind(name)].append(microseconds)
        rows.append({"size": size, **{kind: _summed(times) for kind, times in taken.items()}})
        notes.write({"sizes": rows})
        if len(rows) >= LEAST_SIZES and time.perf_counter() > end:
            break


def _summed(microseconds: list[float]) -> dict[str, float]:
    if not microseconds:
        return {"s": 0.0, "count": 0}
    return {
        "s": sum(microseconds) / 1e6,
        "count": len(microseconds),
        "least_us": min(microseconds),
        "most_us": max(microseconds),
        "deviation_us": statistics.pstdev(microseconds),
    }


def _kernels(profiled: Any) -> Iterator[tuple[str, float]]:
    """Name and microseconds of everything that ran; building torch's own table takes minutes."""
    for event in profiled.profiler.kineto_results.events():
        if "cuda" in str(event.device_type()).lower():
            yield event.name(), event.duration_ns() / 1000


def _kind(name: str) -> str:
    if "matmul_kernel" in name:
        return "product"
    lowered = name.lower()
    clears = any(word in lowered for word in ("elementwise", "fill", "memset"))
    return "clearing" if clears else "other"


def estimate(configs: list[int], end: float, notes: Notes) -> None:
    """How much repetition time `do_bench` gives when it is asked for 100 ms, and whet's timer
    when it is asked for as many samples as make up 20 ms by its own estimate."""
    import triton

    from whet.measure.gpu.timer import CudaTimer

    timer, rows = CudaTimer(), list[dict[str, Any]]()
    for size, ready in launches(configs):
        for launch in ready:
            start = time.perf_counter()
            times = triton.testing.do_bench(launch, rep=STOCK_MS, return_mode="all")
            stock = _repetition(times, start)
            start = time.perf_counter()
            run = Repeated(launch)
            warm = timer.warm(run)
            samples = max(1, round(1e6 * WHET_MS / warm.estimate_ns))
            reading = timer.measure(run, samples, warm)
            whet = _repetition([ns / 1e6 for ns in reading.samples], start)
            rows.append({"size": size, "stock": stock, "whet": {**whet, "l2": reading.l2}})
        wanted = min(ESTIMATE_SIZES, len(PAPER_SIZES))
        asked = {"stock": STOCK_MS, "whet": WHET_MS}
        notes.write({"rows": rows, "asked_ms": asked, "wanted_sizes": wanted})
        if time.perf_counter() > end or len(rows) >= wanted * len(configs):
            break


def _repetition(times_ms: Sequence[float], start: float) -> dict[str, Any]:
    return {
        "kernel_us": 1000 * sum(times_ms) / len(times_ms),
        "count": len(times_ms),
        "repetition_ms": sum(times_ms),
        "wall_ms": 1000 * (time.perf_counter() - start),
    }


PARTS = {"total": total, "gpu-time": gpu_time, "estimate": estimate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--configs", required=True)
    parser.add_argument("--clearing", default="256 MB")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    from triton_kernels import wake_device

    wake_device()
    clear_as(asked.clearing)
    configs = [int(index) for index in asked.configs.split(",")]
    # Compiling is no part of it: the time starts with the first size's kernels in place.
    next(itertools.islice(launches(configs), 1))
    end = time.perf_counter() + asked.seconds
    PARTS[asked.part](configs, end, Notes(asked.out))


if __name__ == "__main__":
    main()

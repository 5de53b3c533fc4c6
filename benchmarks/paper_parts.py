"""Parts of `cost_paper.py` that run on the device, in a process of their own.

    python benchmarks/paper_parts.py PART --configs 3,7 --seconds 15 --out FILE

Each goes through the suite's sizes, evenly spread, until its time is over, and says how many it
came to.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cold import Notes
from problems import PAPER_SIZES, Size, problem
from sides import clear_as

ASKED_MS = 100

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

    seconds, benches = 0.0, 0
    for _, ready in launches(configs):
        for launch in ready:
            start = time.perf_counter()
            triton.testing.do_bench(launch, quantiles=(0.5, 0.2, 0.8))
            seconds += time.perf_counter() - start
            benches += 1
        notes.write({"seconds": seconds, "benches": benches})
        if time.perf_counter() > end:
            break


def gpu_time(configs: list[int], end: float, notes: Notes) -> None:
    """What the device spends in the product and in clearing, by the profiler of torch."""
    import triton
    from torch.profiler import ProfilerActivity, profile

    sums = {"product_s": 0.0, "clearing_s": 0.0, "other_s": 0.0}
    for place, (_, ready) in enumerate(launches(configs), start=1):
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for launch in ready:
                triton.testing.do_bench(launch, quantiles=(0.5, 0.2, 0.8))
        for name, microseconds in _kernels(profiled):
            sums[_kind(name)] += microseconds / 1e6
        notes.write({**sums, "sizes": place})
        if time.perf_counter() > end:
            break


def _kernels(profiled: Any) -> Iterator[tuple[str, float]]:
    """Name and microseconds of everything that ran; building torch's own table takes minutes."""
    for event in profiled.profiler.kineto_results.events():
        if "cuda" in str(event.device_type()).lower():
            yield event.name(), event.duration_ns() / 1000


def _kind(name: str) -> str:
    if "matmul_kernel" in name:
        return "product_s"
    lowered = name.lower()
    clears = any(word in lowered for word in ("elementwise", "fill", "memset"))
    return "clearing_s" if clears else "other_s"


def estimate(configs: list[int], end: float, notes: Notes) -> None:
    """How much repetition time `do_bench` gives when it is asked for 100 ms."""
    import triton

    rows: list[dict[str, Any]] = []
    for size, ready in launches(configs):
        for launch in ready:
            start = time.perf_counter()
            times = triton.testing.do_bench(launch, rep=ASKED_MS, return_mode="all")
            rows.append(
                {
                    "size": size,
                    "kernel_us": 1000 * sum(times) / len(times),
                    "count": len(times),
                    "repetition_ms": sum(times),
                    "wall_ms": 1000 * (time.perf_counter() - start),
                }
            )
        notes.write({"rows": rows, "asked_ms": ASKED_MS})
        if time.perf_counter() > end or len(rows) >= 32:
            break


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

"""`whet.bench` beside timers that others wrote, on functions that others wrote.

    python benchmarks/benching.py [--rounds 5] [--json]

On the CPU: calls of Python's library, NumPy and SciPy, beside `timeit` (the median of its repeats
and the least). With a GPU also calls of torch, beside `triton.testing.do_bench` and
`do_bench_cudagraph`. All in turns; a figure is the median over the rounds of the ratio to whet's
median of the same round, and how far whet's own medians are apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

import whet

Calls = dict[str, Callable[[], Any]]


def on_the_host() -> Calls:
    import scipy.fft

    made = np.random.default_rng(0)
    numbers, square = made.random(100_000), made.random((256, 256))
    told = {"configs": [{"BLOCK_M": 64 * i, "num_warps": 4} for i in range(50)]}
    return {
        "sum(range(10,000))": lambda: sum(range(10_000)),
        "json.dumps": lambda: json.dumps(told),
        "numpy.sort 100,000": lambda: np.sort(numbers),
        "numpy add 256 x 256": lambda: square + square,
        "scipy.fft 100,000": lambda: scipy.fft.fft(numbers),
    }


def on_the_gpu() -> Calls:
    import torch

    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
    return {
        "torch.mm 4096": lambda: torch.mm(a, a),
        "torch.mm 512": lambda: torch.mm(b, b),
        "torch.softmax 4096": lambda: torch.softmax(a, -1),
        "torch.add 4096": lambda: a + a,
    }


def by_timeit(call: Callable[[], Any], ns: float) -> dict[str, float]:
    number = max(1, int(2e6 / ns))
    took = [seconds / number for seconds in timeit.repeat(call, number=number, repeat=200)]
    return {"timeit median": 1e9 * statistics.median(took), "timeit least": 1e9 * min(took)}


def by_triton(call: Callable[[], Any], _: float) -> dict[str, float]:
    from triton.testing import do_bench, do_bench_cudagraph

    return {
        "do_bench": 1e6 * do_bench(call, return_mode="median"),
        "do_bench_cudagraph": 1e6 * do_bench_cudagraph(call),
    }


def compared(calls: Calls, others: Any, rounds: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, list[float]]] = {name: {} for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            ours = whet.bench(call, budget="500ms").median_ns
            found[name].setdefault("whet ns", []).append(ours)
            for other, ns in others(call, ours).items():
                found[name].setdefault(other, []).append(ns / ours)
    return {
        name: {
            **{kind: statistics.median(values) for kind, values in kinds.items()},
            "whet spread": max(kinds["whet ns"]) / min(kinds["whet ns"]),
        }
        for name, kinds in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = compared(on_the_host(), by_timeit, arguments.rounds)
    try:
        import torch

        cuda = torch.cuda.is_available()
    except ImportError:
        cuda = False
    if cuda:
        torch.cuda.init()
        found |= compared(on_the_gpu(), by_triton, arguments.rounds)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, figures in found.items():
        rest = ", ".join(
            f"{kind} {value:.3f}" for kind, value in figures.items() if kind[-2:] != "ns"
        )
        print(f"{name:22} {figures['whet ns'] / 1e3:10.2f} us  {rest}")


if __name__ == "__main__":
    main()

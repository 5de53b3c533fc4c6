"""What refinement between calls adds to them, and when the better config comes.

    python benchmarks/idle.py [--size 1024] [--seconds 5] [--limit 120] [--json]

The tutorial's matrix product, once in mode `cached` (the author's first config for ever) and once
with `idle=True`, which begins with the same config. Calls are made one after another, and the
device is waited for every ten. First `off` for some seconds, then `on` until it is decided, then
both in turns, `on` with what was decided. `added_percent` is the time of a call while the
refinement goes on, above the mean of the two times of `off`; `booked_percent` is what the
refinement says it has spent; `longest_call_ms` is the longest that one call held up its caller.
Where the host is slower than the kernel, as with small sizes, a better config cannot be seen in
the time of a call.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

WAIT_EVERY = 10
TURNS = 10


def serve(call: Callable[[], Any], going_on: Callable[[float], bool]) -> dict[str, float]:
    """Calls for as long as it goes on, which is asked with the seconds since it began."""
    import torch

    torch.cuda.synchronize()
    longest, calls = 0.0, 0
    began = time.perf_counter()
    while going_on(time.perf_counter() - began):
        for _ in range(WAIT_EVERY):
            start = time.perf_counter()
            call()
            longest = max(longest, time.perf_counter() - start)
        torch.cuda.synchronize()
        calls += WAIT_EVERY
    seconds = time.perf_counter() - began
    return {
        "calls": calls,
        "seconds": seconds,
        "call_us": 1e6 * seconds / calls,
        "longest_call_ms": 1e3 * longest,
    }


def measure(size: int, seconds: float, limit: float) -> dict[str, Any]:
    import torch
    import triton

    import whet
    from triton_kernels import (
        KEY,
        matmul_arguments,
        matmul_grid,
        matmul_inputs,
        matmul_kernel,
        tutorial_configs,
    )

    arguments, grid = matmul_arguments(*matmul_inputs(size)), matmul_grid(size, size)
    configs = tutorial_configs()
    off: Any = whet.autotune(configs=configs, key=list(KEY), mode="cached")(matmul_kernel)
    on: Any = whet.autotune(configs=configs, key=list(KEY), idle=True)(matmul_kernel)

    def for_a_while(passed: float) -> bool:
        return passed < seconds

    def for_a_turn(passed: float) -> bool:
        return passed < 2 * seconds / TURNS

    def until_decided(passed: float) -> bool:
        return bool(on._refining) and passed < limit

    off[grid](*arguments)
    before = serve(lambda: off[grid](*arguments), for_a_while)
    start = time.perf_counter()
    on[grid](*arguments)
    first_call_ms = 1e3 * (time.perf_counter() - start)
    began_with = str(on.best_config)
    ((refinement, _),) = on._refining.values()
    during = serve(lambda: on[grid](*arguments), until_decided)
    turns = [
        [serve(partial(kernel[grid], *arguments), for_a_turn) for kernel in (off, on)]
        for _ in range(TURNS)
    ]
    after, decided = ([turn[place] for turn in turns] for place in (0, 1))
    after_us, decided_us = (median(row["call_us"] for row in rows) for rows in (after, decided))
    plain_us = (before["call_us"] + after_us) / 2
    allowance = refinement.allowance
    return {
        "size": size,
        "off_us": [before["call_us"], after_us],
        "on": during,
        "decided_us": decided_us,
        "first_call_ms": first_call_ms,
        "added_percent": 100 * (during["call_us"] / plain_us - 1),
        "booked_percent": 100 * allowance.spent_s / allowance.elapsed_s,
        "allowed_percent": 100 * allowance.share,
        "calls_until_decided": during["calls"] if refinement.done else None,
        "failure": refinement.failure,
        "began_with": began_with,
        "pick": str(on.best_config),
        "pick_speedup": after_us / decided_us,
        "device": torch.cuda.get_device_name(),
        "triton": triton.__version__,
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["WHET_STORE"] = str(Path(folder) / "whet.db")
        os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "triton")
        row = measure(asked.size, asked.seconds, asked.limit)
    if asked.json:
        print(json.dumps(row))
        return
    print(
        f"a call takes {row['off_us'][0]:.1f} and {row['off_us'][1]:.1f} µs "
        f"without, {row['on']['call_us']:.1f} µs with: {row['added_percent']:+.2f} % "
        f"(booked {row['booked_percent']:.2f} of {row['allowed_percent']:g} %)"
    )
    print(
        f"first call {row['first_call_ms']:.1f} ms, longest later one "
        f"{row['on']['longest_call_ms']:.1f} ms"
    )
    print(
        f"decided after {row['calls_until_decided']} calls, {row['on']['seconds']:.1f} s: "
        f"{row['began_with']} -> {row['pick']}, {row['pick_speedup']:.2f}×"
    )
    if row["failure"]:
        print(f"given up: {row['failure']}")


if __name__ == "__main__":
    main()

"""What a call of a tuned kernel costs the host: the bare kernel, stock `triton.autotune`, whet.

    python benchmarks/dispatch.py [--rounds 7] [--calls 2000] [--json]

All three launch the tutorial's matrix product on matrices so small that the device is always done
before the next launch. They take turns within each round, in an order that rotates. `drain_us` is
the longest that the device still needed after the last call of a round: were it long, the launches
would have waited for the device.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZE = 64
NAMES = ("bare", "stock", "whet")


def contenders() -> dict[str, Callable[[], Any]]:
    """Each launches the same kernel with the same arguments, its key tuned already."""
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

    arguments = matmul_arguments(*matmul_inputs(SIZE))
    grid = matmul_grid(SIZE, SIZE)
    small = [config for config in tutorial_configs() if config.num_warps == 2]
    stock = triton.autotune(configs=small, key=list(KEY))(matmul_kernel)
    tuned: Any = whet.autotune(configs=small, key=list(KEY))(matmul_kernel)
    for kernel in (stock, tuned):
        kernel[grid](*arguments)
    pick = tuned.best_config.all_kwargs()
    m, n, k, group = (pick[name] for name in (*(f"BLOCK_SIZE_{x}" for x in "MNK"), "GROUP_SIZE_M"))
    warps, stages = pick["num_warps"], pick["num_stages"]

    def call_bare() -> None:
        matmul_kernel[grid](
            *arguments,
            BLOCK_SIZE_M=m,
            BLOCK_SIZE_N=n,
            BLOCK_SIZE_K=k,
            GROUP_SIZE_M=group,
            num_warps=warps,
            num_stages=stages,
        )

    def call_stock() -> None:
        stock[grid](*arguments)

    def call_whet() -> None:
        tuned[grid](*arguments)

    calls = dict(zip(NAMES, (call_bare, call_stock, call_whet), strict=True))
    for call in calls.values():
        for _ in range(200):
            call()
    torch.cuda.synchronize()
    return calls


def one_turn(
    call: Callable[[], Any], calls: int, synchronize: Callable[[], None]
) -> tuple[float, float]:
    """Microseconds a call, and microseconds until the device was done after the last one."""
    synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    queued = time.perf_counter()
    synchronize()
    drained = time.perf_counter()
    return 1e6 * (queued - start) / calls, 1e6 * (drained - queued)


def measure(rounds: int, calls: int) -> dict[str, Any]:
    import torch
    import triton

    launches = contenders()
    costs: dict[str, list[float]] = {name: [] for name in NAMES}
    drain_us = 0.0
    gc.disable()
    for number in range(rounds):
        first = number % len(NAMES)
        for name in NAMES[first:] + NAMES[:first]:
            cost, drained = one_turn(launches[name], calls, torch.cuda.synchronize)
            costs[name].append(cost)
            drain_us = max(drain_us, drained)
    gc.enable()
    best = {name: min(values) for name, values in costs.items()}
    median = {name: statistics.median(values) for name, values in costs.items()}
    above = {
        name: statistics.median(
            value - bare for value, bare in zip(costs[name], costs["bare"], strict=True)
        )
        for name in NAMES
    }
    return {
        "rounds": rounds,
        "calls": calls,
        "best_us": best,
        "median_us": median,
        "best_above_bare_us": {name: best[name] - best["bare"] for name in NAMES},
        "median_above_bare_us": above,
        "drain_us": drain_us,
        "device": torch.cuda.get_device_name(),
        "triton": triton.__version__,
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["WHET_STORE"] = str(Path(folder) / "whet.db")
        os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "triton")
        row = measure(asked.rounds, asked.calls)
    if asked.json:
        print(json.dumps(row))
        return
    print(f"{row['device']}, Triton {row['triton']}, PyTorch {row['torch']}")
    print(f"{asked.rounds} rounds of {asked.calls} calls, µs a call; the device was done")
    print(f"{row['drain_us']:.0f} µs after the last call at the latest")
    print()
    print("        best  above bare   median  above bare, round by round")
    for name in NAMES:
        print(
            f"{name:5} {row['best_us'][name]:6.2f}      {row['best_above_bare_us'][name]:+6.2f}   "
            f"{row['median_us'][name]:6.2f}      {row['median_above_bare_us'][name]:+6.2f}"
        )


if __name__ == "__main__":
    main()

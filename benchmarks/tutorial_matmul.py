"""The first call of the tutorial's matrix product, 16 configs, everything cold: stock and whet.

    python benchmarks/tutorial_matmul.py [--size 4096] [--rounds 1] [--pairs 200] [--json]

Each side runs in a process of its own with empty folders for Triton's and whet's results. The clock
starts before the first call of the kernel and stops when its result is there; the CUDA context, the
driver and the compiler's tools are up by then on both sides.

A third process, the referee, then times both picks: one CUDA graph of one kernel each, launched in
turns behind a sleeping kernel, so that the host is never waited for, and after a read of a buffer
twice as large as L2 (`referee.py`). It uses no part of whet. "equal" means that the 95 % interval
of the paired ratio lies within ±0.5 %.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from cold import byte_compile, empty_caches
from referee import Referee, captured, in_turns

EQUAL_WITHIN = 0.005
WRONG_ABOVE = 2e-3
CHILD_LIMIT_S = 500


def tune_cold(side: str, size: int) -> dict[str, Any]:
    """Runs in a process that has never tuned anything."""
    import torch
    import triton

    from triton_kernels import (
        KEY,
        matmul_arguments,
        matmul_grid,
        matmul_inputs,
        matmul_kernel,
        relative_error,
        tutorial_configs,
        wake_device,
    )

    wake_device()
    a, b, c = matmul_inputs(size)
    before = time.perf_counter()
    if side == "whet":
        import whet

        autotune: Any = whet.autotune
    else:
        autotune = triton.autotune
    kernel = autotune(configs=tutorial_configs(), key=list(KEY))(matmul_kernel)
    torch.cuda.synchronize()
    start = time.perf_counter()
    kernel[matmul_grid(size, size)](*matmul_arguments(a, b, c))
    torch.cuda.synchronize()
    end = time.perf_counter()
    timings = kernel.configs_timings
    return {
        "first_call_s": end - start,
        "decorate_s": start - before,
        "pick": kernel.best_config.all_kwargs(),
        "configs": len(timings),
        "unusable": sum(math.isinf(timing[0]) for timing in timings.values()),
        "relative_error": relative_error(a, b, c),
        "device": torch.cuda.get_device_name(),
        "triton": triton.__version__,
        "torch": torch.__version__,
    }


def referee(picks: dict[str, dict[str, int]], size: int, pairs: int) -> dict[str, Any]:
    """Times the two picks against each other and checks what they compute."""
    import torch

    from triton_kernels import (
        matmul_arguments,
        matmul_grid,
        matmul_inputs,
        matmul_kernel,
        relative_error,
    )

    a, b, c = matmul_inputs(size)
    arguments, grid = matmul_arguments(a, b, c), matmul_grid(size, size)
    errors, graphs = {}, {}
    for side, pick in picks.items():
        c.zero_()
        launch = partial(matmul_kernel[grid], *arguments, **pick)
        launch()
        errors[side] = relative_error(a, b, c)
        graphs[side] = captured(launch)
    judge = Referee(torch)
    times = in_turns(graphs, pairs, referee=judge)
    ratios = sorted(w / s for w, s in zip(times["whet"], times["stock"], strict=True))
    low, high = _median_interval(ratios)
    return {
        "pairs": pairs,
        "discarded": judge.discarded,
        "median_us": {side: statistics.median(us) for side, us in times.items()},
        "ratio": statistics.median(ratios),
        "interval": [low, high],
        "verdict": _verdict(low, high),
        "relative_error": errors,
    }


def _median_interval(ordered: list[float]) -> tuple[float, float]:
    """95 % for the median, from order statistics: no assumption about the distribution."""
    n = len(ordered)
    # The largest rank with P(fewer than `rank` of n lie below the median) ≤ 2.5 %.
    rank, ways = 1, 1 + n
    while 40 * ways <= 2**n:
        rank += 1
        ways += math.comb(n, rank)
    return ordered[rank - 1], ordered[n - rank]


def _verdict(low: float, high: float) -> str:
    if low >= 1 - EQUAL_WITHIN and high <= 1 + EQUAL_WITHIN:
        return "equal"
    if high < 1:
        return "whet's pick is faster"
    if low > 1:
        return "whet's pick is slower"
    return "undecided"


def _child(arguments: list[str], folder: Path) -> Any:
    """What this file prints with `arguments`, in a new process that finds no results anywhere."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env={**os.environ, **empty_caches(folder)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=CHILD_LIMIT_S,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def one_round(size: int, pairs: int, sides: tuple[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for side in sides:
        with tempfile.TemporaryDirectory() as name:
            row[side] = _child(["--side", side, "--size", str(size)], Path(name))
    picks = {side: row[side]["pick"] for side in ("stock", "whet")}
    with tempfile.TemporaryDirectory() as name:
        row["referee"] = _child(
            ["--referee", json.dumps(picks), "--size", str(size), "--pairs", str(pairs)],
            Path(name),
        )
    row["times_less"] = row["stock"]["first_call_s"] / row["whet"]["first_call_s"]
    row["same_pick"] = picks["stock"] == picks["whet"]
    errors = [row["stock"]["relative_error"], row["whet"]["relative_error"]]
    errors += row["referee"]["relative_error"].values()
    # Not "any above": a NaN is above nothing.
    row["right"] = all(error <= WRONG_ABOVE for error in errors)
    return row


def _pick_text(pick: dict[str, int]) -> str:
    blocks = "×".join(str(pick[f"BLOCK_SIZE_{letter}"]) for letter in "MNK")
    return f"{blocks}, {pick['num_stages']} stages, {pick['num_warps']} warps"


def print_table(size: int, rows: list[dict[str, Any]]) -> None:
    about = rows[0]["stock"]
    print(f"fp16 matrix product {size}³, {about['configs']} configs, cold")
    print(f"{about['device']}, Triton {about['triton']}, PyTorch {about['torch']}")
    for row in rows:
        judged = row["referee"]
        low, high = judged["interval"]
        print()
        for side in ("stock", "whet"):
            found = row[side]
            print(
                f"{side:6} {found['first_call_s']:7.2f} s   {judged['median_us'][side]:7.1f} µs   "
                f"{_pick_text(found['pick'])}   ({found['unusable']} unusable)"
            )
        print(f"stock takes {row['times_less']:.1f}× the time of whet")
        print(
            f"referee: whet/stock {judged['ratio']:.4f} [{low:.4f}, {high:.4f}] in "
            f"{judged['pairs']} pairs: {judged['verdict']}"
            f"{' (the same config)' if row['same_pick'] else ''}"
        )
        print(f"results {'right' if row['right'] else 'WRONG'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=("stock", "whet"), help=argparse.SUPPRESS)
    parser.add_argument("--referee", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        print(json.dumps(tune_cold(asked.side, asked.size)))
        return
    if asked.referee:
        print(json.dumps(referee(asked.referee, asked.size, asked.pairs)))
        return
    byte_compile()
    rows = [
        one_round(asked.size, asked.pairs, ("whet", "stock") if number % 2 else ("stock", "whet"))
        for number in range(asked.rounds)
    ]
    right = all(row["right"] for row in rows)
    if asked.json:
        times_less = statistics.median(row["times_less"] for row in rows)
        print(json.dumps({"size": asked.size, "times_less": times_less, "rounds": rows}))
    else:
        print_table(asked.size, rows)
    raise SystemExit(0 if right else 1)


if __name__ == "__main__":
    main()

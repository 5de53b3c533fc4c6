"""A stream of random row counts through kernels that were never tuned here: how long calls wait.

    python benchmarks/token_counts.py [--calls 500] [--most 8192] [--own 40] [--no-limit] [--json]

The store is empty. Each call has its own number of rows, as a server's batches do. `above` is the
time of all calls beyond what the same calls take once more; `longest` leaves out the first ten.
Then, for `--own` of the row counts, what is used is timed beside every other implementation.
Without a GPU, a choice of three ways that torch has for a product on the CPU is called.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import whet

CUDA = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if CUDA else ("cpu", torch.float32)
HIDDEN, INNER = (4096, 11008) if CUDA else (256, 512)


def synchronized(call: Callable[[], Any]) -> float:
    """Seconds, the device's work included."""
    start = time.perf_counter()
    call()
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter() - start


Subject = tuple[Callable[..., Any], Any, tuple[Any, ...]]


def subjects(limit: bool) -> dict[str, Subject]:
    """By name, a function of rows, the choice behind it, and what that gets besides rows."""
    made = partial(torch.randn, device=DEVICE, dtype=DTYPE)
    weight, gate, up = made(HIDDEN, INNER), made(INNER, HIDDEN), made(INNER, HIDDEN)
    if CUDA:
        from whet.kernels import gated_mlp, gemm, mlp, mlp_triton, product, product_triton

        if not limit:
            for one in (product.chosen, mlp.apart):
                one.wait_limit_s = None
            for kernel in (product_triton.gemm_kernel, mlp_triton.gated_kernel):
                kernel.whet_wait_limit_s = None
        return {
            "gemm": (lambda x: gemm(x, weight), product.chosen, (weight,)),
            "gated_mlp": (lambda x: gated_mlp(x, gate, up), mlp.apart, (gate, up, "silu")),
        }

    def by_rows(x: Any, w: Any) -> Any:
        return torch.stack([row @ w for row in x])

    ours = whet.choice(
        {
            "rows": by_rows,
            "einsum": lambda x, w: torch.einsum("mk,kn->mn", x, w),
            "matmul": torch.matmul,
        },
        name="product",
        key=lambda x, w: {"m": x.shape[0], "k": x.shape[1], "n": w.shape[1]},
        buckets={"m": "pow2"},
        wait_limit="2s" if limit else None,
    )
    return {"product": (lambda x: ours(x, weight), ours, (weight,))}


def stream(subject: Subject, counts: list[int], own: int) -> dict[str, Any]:
    call, chooser, rest = subject
    inputs = {m: torch.randn(m, HIDDEN, device=DEVICE, dtype=DTYPE) for m in sorted(set(counts))}
    first = [synchronized(lambda m=m: call(inputs[m])) for m in counts]  # type: ignore[misc]
    standing = len(chooser.stand_ins)
    again = [synchronized(lambda m=m: call(inputs[m])) for m in counts]  # type: ignore[misc]
    shares = [share_of_own_best(chooser, (inputs[m], *rest)) for m in counts[:own]]
    return {
        "calls": len(counts),
        "above_s": sum(first) - sum(again),
        "longest_s": max(first[10:]),
        "longest_of_ten_s": max(first[:10]),
        "tuned": len(chooser.picks),
        "stand_ins": standing,
        "mean_share": statistics.mean(shares),
        "least_share": min(shares),
    }


def share_of_own_best(chooser: Any, given: tuple[Any, ...]) -> float:
    """How fast what is used is beside the fastest implementation for exactly these rows."""
    rows = given[0].shape[0]
    place = f"m={1 << (rows - 1).bit_length()}, "
    used = {
        key: said.partition(":")[0] for key, said in {**chooser.stand_ins, **chooser.picks}.items()
    }
    (name,) = {pick for key, pick in used.items() if place in key}
    times = {}
    for one, implementation in chooser.implementations.items():
        try:
            times[one] = best_of(partial(implementation, *given))
        except Exception:  # one that cannot do this, or a library that is not there
            continue
    return min(times.values()) / times[name]


def best_of(call: Callable[[], Any], times: int = 12) -> float:
    call()
    return min(synchronized(call) for _ in range(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--most", type=int, default=8192 if CUDA else 512)
    parser.add_argument("--own", type=int, default=40)
    parser.add_argument("--no-limit", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rng = random.Random(1)
    counts = [rng.randint(1, asked.most) for _ in range(asked.calls)]
    rows = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["WHET_STORE"] = str(Path(folder) / "whet.db")
        for name, subject in subjects(not asked.no_limit).items():
            rows[name] = stream(subject, counts, asked.own)
    if asked.json:
        print(json.dumps(rows))
        return
    for name, row in rows.items():
        print(name)
        for what, value in row.items():
            print(
                f"  {what:18} {value:.3f}" if isinstance(value, float) else f"  {what:18} {value}"
            )


if __name__ == "__main__":
    main()

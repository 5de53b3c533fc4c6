"""A softmax over the rows of a matrix in Triton, from a space instead of a list of configs.

On a machine with a GPU:

    whet tune examples/triton_softmax.py:softmax --key rows=8192,columns=4096
    whet run examples/triton_softmax.py

On a machine without one, compile every config and see what it would use:

    whet precompile examples/triton_softmax.py:softmax --arch h100 --key rows=8192,columns=4096
"""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

import whet

# `num_warps` is Triton's, as are `num_stages`, `num_ctas` and `maxnreg`; others are the kernel's.
SPACE = whet.Space(
    {"BLOCK": [1024, 2048, 4096, 8192], "num_warps": [4, 8, 16]},
    constraints=["BLOCK >= 128 * num_warps"],
)


def inputs(rows: int, columns: int, dtype: str = "float32") -> tuple[Any, tuple[Any, ...]]:
    """`(grid, args)`: what `softmax[grid](*args)` is called with for this key.

    `--key rows=8192,columns=4096` arrives here as `inputs(rows=8192, columns=4096)`. A third part,
    a dict, may hold arguments by name.
    """
    x = torch.randn((rows, columns), device="cuda", dtype=getattr(torch, dtype))
    return (rows,), (x, torch.empty_like(x), rows, columns)


def reference(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"y_ptr": torch.softmax(arguments["x_ptr"].float(), dim=1)}


@whet.autotune(
    space=SPACE,
    key=["rows", "columns"],
    inputs=inputs,
    check=reference,
    buckets={"rows": "pow2"},  # 5000 and 8192 rows are tuned once
)
@triton.jit
def softmax(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, columns, BLOCK):
        column = at + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + column, mask=column < columns, other=float("-inf"))
        higher = tl.maximum(largest, x.to(tl.float32))
        # Where nothing was read yet both are -inf, whose difference is no number.
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(largest - shift) + tl.exp(x.to(tl.float32) - shift)
        largest = higher
    most = tl.max(largest, axis=0)
    norm = tl.sum(total * tl.exp(largest - most), axis=0)
    for at in range(0, columns, BLOCK):
        column = at + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + column, mask=column < columns, other=float("-inf"))
        y = tl.exp(x.to(tl.float32) - most) / norm
        tl.store(y_ptr + start + column, y.to(y_ptr.dtype.element_ty), mask=column < columns)


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit(
            "There is no GPU here to run on. This compiles the kernel for one:\n"
            "  whet precompile examples/triton_softmax.py:softmax --arch h100 "
            "--key rows=8192,columns=4096"
        )
    grid, args = inputs(8192, 4096)
    x, y = args[:2]
    softmax[grid](*args)  # tunes at the first call, and knows the answer from then on
    torch.testing.assert_close(y, torch.softmax(x, dim=1))
    seconds = triton.testing.do_bench(lambda: softmax[grid](*args)) / 1e3
    moved = 2 * x.numel() * x.element_size()
    print(f"8192 × 4096: {moved / seconds / 1e12:.2f} TB/s with {softmax.best_config}")


if __name__ == "__main__":
    main()

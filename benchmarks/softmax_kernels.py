"""Row softmax in fp16: a kernel limited by memory, and a list of configs for it.

Rows that fit into a chunk are read once. Longer ones are gone through twice: the first time for
their maximum and their sum, which one pass can find together.
"""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    rows,
    columns,
    stride,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
):
    row = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    within = tl.arange(0, CHUNK)
    start = row.to(tl.int64)[:, None] * stride + within[None, :]
    if columns <= CHUNK:
        valid = inside & (within < columns)[None, :]
        x = tl.load(x_ptr + start, mask=valid, other=float("-inf")).to(tl.float32)
        # A row beyond the last is all -inf, and -inf - -inf would be NaN.
        highest = tl.maximum(tl.max(x, axis=1), -1e30)
        powers = tl.exp(x - highest[:, None])
        y = powers / tl.sum(powers, axis=1)[:, None]
        tl.store(y_ptr + start, y.to(tl.float16), mask=valid)
    else:
        highest = tl.full((ROWS,), -1e30, dtype=tl.float32)
        total = tl.zeros((ROWS,), dtype=tl.float32)
        for offset in tl.range(0, columns, CHUNK, num_stages=STAGES):
            valid = inside & (offset + within < columns)[None, :]
            x = tl.load(x_ptr + start + offset, mask=valid, other=float("-inf")).to(tl.float32)
            higher = tl.maximum(highest, tl.max(x, axis=1))
            total = total * tl.exp(highest - higher) + tl.sum(tl.exp(x - higher[:, None]), axis=1)
            highest = higher
        scale = 1.0 / total
        for offset in tl.range(0, columns, CHUNK, num_stages=STAGES):
            valid = inside & (offset + within < columns)[None, :]
            x = tl.load(x_ptr + start + offset, mask=valid, other=float("-inf")).to(tl.float32)
            y = tl.exp(x - highest[:, None]) * scale[:, None]
            tl.store(y_ptr + start + offset, y.to(tl.float16), mask=valid)


def softmax_inputs(rows: int, columns: int, device: str = "cuda") -> tuple[Any, Any]:
    torch.manual_seed(0)
    x = torch.randn((rows, columns), device=device, dtype=torch.float16)
    return x, torch.empty_like(x)


def softmax_arguments(x: Any, y: Any) -> tuple[Any, ...]:
    """What `softmax_kernel` takes before its constants."""
    return (x, y, *x.shape, x.stride(0))


def softmax_grid(rows: int) -> Any:
    def grid(meta: Any) -> tuple[int]:
        return (triton.cdiv(rows, meta["ROWS"]),)

    return grid


def softmax_error(x: Any, y: Any) -> float:
    """The largest difference to torch's, relative to its largest element."""
    expected = torch.softmax(x.float(), dim=1)
    return float((y.float() - expected).abs().max() / expected.abs().max())

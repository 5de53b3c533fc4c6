"""One row times a matrix: nothing for tensor cores, only rows of weights to be read once."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom
# fmt: off

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from whet.kernels.spaces import ROW_SPACE
from whet.kernels.tiles import activated
from whet.targets.triton.decorator import autotune

# Where K is a multiple of it, no block of any config hangs over.
_LONGEST_BLOCK_K = 2048


@triton.jit
def _products(w, a, at, ks, K, EVEN_K: tl.constexpr):
    """Weights are not read again: they leave the caches first."""
    if EVEN_K:
        b = tl.load(w + at, eviction_policy="evict_first")
    else:
        b = tl.load(w + at, ks[None, :] < K, 0.0, eviction_policy="evict_first")
    return a[None, :] * b.to(tl.float32)


@autotune(space=ROW_SPACE, key=["N", "K", "ACTIVATION"])
@triton.jit
def row_kernel(
    x, w, up, y, N, K, w_n, up_n, EVEN_K: tl.constexpr, ACTIVATION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
):
    """y = w @ x, or act(w @ x) * (up @ x) where there is an activation. Each thread keeps its own
    sums to the end."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    # Columns beyond the end read others again, whose results are not stored.
    rows = (columns % N).to(tl.int64)[:, None]
    acc = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    other = acc
    for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        ks = k + tl.arange(0, BLOCK_K)
        if EVEN_K:
            a = tl.load(x + ks).to(tl.float32)
        else:
            a = tl.load(x + ks, ks < K, 0.0).to(tl.float32)
        acc += _products(w, a, rows * w_n + ks[None, :], ks, K, EVEN_K)
        if ACTIVATION is not None:
            other += _products(up, a, rows * up_n + ks[None, :], ks, K, EVEN_K)
    made = tl.sum(acc, 1)
    if ACTIVATION is not None:
        made = activated(made, ACTIVATION) * tl.sum(other, 1)
    tl.store(y + columns, made.to(y.dtype.element_ty), columns < N)


def times_row(x: Any, w: Any, up: Any = None, activation: str | None = None) -> Any:
    """`x` is 1 × K, `w` and `up` are N × K with contiguous rows; 1 × N."""
    columns, depth = w.shape
    y = torch.empty(1, columns, dtype=x.dtype, device=x.device)
    x = x if x.stride(1) == 1 else x.contiguous()
    up = w if up is None else up

    def grid(meta: Any) -> tuple[int]:
        return (triton.cdiv(columns, meta["BLOCK_N"]),)

    row_kernel[grid](
        x, w, up, y, columns, depth, w.stride(0), up.stride(0),
        EVEN_K=depth % _LONGEST_BLOCK_K == 0, ACTIVATION=activation,
    )
    return y

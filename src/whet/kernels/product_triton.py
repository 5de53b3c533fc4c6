"""A matrix product: split along K, persistent, or through tensor descriptors, as its config says.
One row has a kernel of its own: nothing for tensor cores, only rows of weights to be read once."""
# ruff: noqa: N803, E501 - parameters of kernels are written in capitals by custom
# fmt: off

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from whet.kernels.spaces import GEMM_SPACE, ROW_SPACE
from whet.kernels.tiles import (
    MOST_ROWS_TO_SPLIT,
    activated,
    gathered,
    let_triton_allocate,
    multiprocessors,
    part_of_k,
    suited,
    tile_at,
    workspace,
)
from whet.targets.triton.decorator import autotune

# Where K is a multiple of it, no block of any config hangs over.
LONGEST_BLOCK_K = 128
# The same for one row.
_LONGEST_BLOCK_K = 2048


@triton.jit
def tiles_at(x, w, m, n, k, end, rows, columns, x_m, x_k, w_n, w_k, BLOCK_K: tl.constexpr, DESCRIPTORS: tl.constexpr, W_ROWS: tl.constexpr, EVEN_K: tl.constexpr):
    """A tile of x and one of w, zero beyond the end of K."""
    if DESCRIPTORS:
        a = x.load([m, k])
        b = w.load([n, k]).T if W_ROWS else w.load([k, n])
    else:
        ks = k + tl.arange(0, BLOCK_K)
        left = x + rows[:, None] * x_m + ks[None, :] * x_k
        right = w + columns[None, :] * w_n + ks[:, None] * w_k
        if EVEN_K:
            a, b = tl.load(left), tl.load(right)
        else:
            a = tl.load(left, ks[None, :] < end, 0.0)
            b = tl.load(right, ks[:, None] < end, 0.0)
    return a, b


@triton.jit
def accumulated(x, w, m, n, begin, end, M, N, x_m, x_k, w_n, w_k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DESCRIPTORS: tl.constexpr, W_ROWS: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr, IMPRECISE: tl.constexpr = None):
    """`IMPRECISE` is after how many products sums of fp8 are carried over to float32."""
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    # Rows and columns beyond the end read others again, whose results are not stored.
    rows = ((m + tl.arange(0, BLOCK_M)) % M).to(tl.int64)
    columns = ((n + tl.arange(0, BLOCK_N)) % N).to(tl.int64)
    for k in range(begin, end, BLOCK_K):
        a, b = tiles_at(x, w, m, n, k, end, rows, columns, x_m, x_k, w_n, w_k, BLOCK_K, DESCRIPTORS, W_ROWS, EVEN_K)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE)
    return acc


@triton.jit
def _one_tile(x, w, y, sums, locks, tile, M, N, K, x_m, x_k, w_n, w_k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr, DESCRIPTORS: tl.constexpr, W_ROWS: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr):
    m, n = tile_at(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    begin, end = part_of_k(K, BLOCK_K, SPLIT_K)
    acc = accumulated(x, w, m, n, begin, end, M, N, x_m, x_k, w_n, w_k, BLOCK_M, BLOCK_N, BLOCK_K, DESCRIPTORS, W_ROWS, EVEN_K, PRECISION)
    acc, whole = gathered(sums, locks, acc, tile, M, N, BLOCK_M, BLOCK_N, SPLIT_K)
    if whole:
        rows, columns = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        at = rows.to(tl.int64)[:, None] * N + columns[None, :]
        tl.store(y + at, acc.to(y.dtype.element_ty), inside)


@autotune(
    space=GEMM_SPACE,
    key=["M", "N", "K", "W_ROWS", "ALIGNED"],
    buckets={"M": "pow2"},
    prune_configs_by={"early_config_prune": suited},
)
@triton.jit
def gemm_kernel(
    x, w, y, sums, locks, M, N, K, x_m, x_k, w_n, w_k,
    W_ROWS: tl.constexpr, ALIGNED: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr, PERSISTENT: tl.constexpr, DESCRIPTORS: tl.constexpr,
):
    """y = x @ w, where w is K × N and may be stored as rows of K."""
    if DESCRIPTORS:
        x = tl.make_tensor_descriptor(x, [M, K], [x_m, 1], [BLOCK_M, BLOCK_K])
        if W_ROWS:
            w = tl.make_tensor_descriptor(w, [N, K], [w_n, 1], [BLOCK_N, BLOCK_K])
        else:
            w = tl.make_tensor_descriptor(w, [K, N], [w_k, 1], [BLOCK_K, BLOCK_N])
    if PERSISTENT:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
            _one_tile(x, w, y, sums, locks, tile, M, N, K, x_m, x_k, w_n, w_k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K, DESCRIPTORS, W_ROWS, EVEN_K, PRECISION)
    else:
        _one_tile(x, w, y, sums, locks, tl.program_id(0), M, N, K, x_m, x_k, w_n, w_k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K, DESCRIPTORS, W_ROWS, EVEN_K, PRECISION)


def aligned(*tensors: Any) -> bool:
    """Whether descriptors can read them: rows of contiguous elements, each at 16 bytes."""
    for one in tensors:
        *_, row, element = one.stride()
        if element != 1 or row * one.element_size() % 16 or one.data_ptr() % 16:
            return False
    return True


def grid_of(rows: int, columns: int, programs: int) -> Any:
    """Tiles and parts of K, or as many programs as the GPU holds at once."""
    def grid(meta: Any) -> tuple[int, int]:
        if meta["SPLIT_K"] > 1 and rows > MOST_ROWS_TO_SPLIT:
            raise ValueError(f"SPLIT_K={meta['SPLIT_K']} is for at most {MOST_ROWS_TO_SPLIT} rows, not {rows}")
        tiles = -(-rows // meta["BLOCK_M"]) * -(-columns // meta["BLOCK_N"])
        return (min(programs, tiles) if meta["PERSISTENT"] else tiles), meta["SPLIT_K"]

    return grid


def product(x: Any, w: Any) -> Any:
    """x @ w of two matrices."""
    rows, depth = x.shape
    columns = w.shape[1]
    y = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    if not rows or not columns:
        return y
    if not depth:
        return y.zero_()
    w_rows = w.stride(0) == 1 and w.stride(1) >= depth
    if rows == 1 and w_rows:
        return times_row(x, w.t())
    stored = w.t() if w_rows else w
    if not w_rows and w.stride(1) != 1:
        w = stored = w.contiguous()
    sums, locks = workspace(x, columns, 1)
    if x.is_cuda:
        let_triton_allocate()
    programs = multiprocessors(x.device.index if x.is_cuda else None)
    gemm_kernel[grid_of(rows, columns, programs)](
        x, w, y, sums, locks, rows, columns, depth, x.stride(0), x.stride(1),
        w.stride(1), w.stride(0), W_ROWS=w_rows, ALIGNED=aligned(x, stored),
        EVEN_K=depth % LONGEST_BLOCK_K == 0, PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
    )
    return y


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
        return (-(-columns // meta["BLOCK_N"]),)

    row_kernel[grid](
        x, w, up, y, columns, depth, w.stride(0), up.stride(0),
        EVEN_K=depth % _LONGEST_BLOCK_K == 0, ACTIVATION=activation,
    )
    return y

"""Products of fp8 matrices with scales, and how numbers become fp8."""
# ruff: noqa: N803, E501 - parameters of kernels are written in capitals by custom
# fmt: off

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from whet.kernels.product_triton import accumulated, aligned, grid_of, tiles_at
from whet.kernels.spaces import FP8_GEMM_SPACE
from whet.kernels.tiles import (
    activated,
    gathered,
    let_triton_allocate,
    multiprocessors,
    part_of_k,
    power,
    suited_for,
    tile_at,
    workspace,
)
from whet.targets.triton.decorator import autotune

# Scales of blocks are for so many elements of K, and of the rows of a weight.
BLOCK = 128

# Where K is a multiple of it, no block of any config hangs over.
LONGEST_BLOCK_K = 256

# Tensor cores add fp8 products with some 14 bits; without `fast_accum`, so many of them before the sum is carried over.
CARRIED_AFTER = 128

# Elements of a row that a program reads at a time.
_CHUNK = 4096


@triton.jit
def _accumulated_blocks(x, w, m, n, begin, end, M, N, x_m, w_n, x_scale, w_scale, xs_m, xs_k, ws_n, ws_k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DESCRIPTORS: tl.constexpr, EVEN_K: tl.constexpr, X_BLOCK: tl.constexpr, IMPRECISE: tl.constexpr):
    """Each block of K has scales of its own, so its products are added up by themselves."""
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    rows = ((m + tl.arange(0, BLOCK_M)) % M).to(tl.int64)
    columns = ((n + tl.arange(0, BLOCK_N)) % N).to(tl.int64)
    of_rows = x_scale + rows // X_BLOCK * xs_m
    of_columns = w_scale + columns // 128 * ws_n
    for k in range(begin, end, BLOCK_K):
        a, b = tiles_at(x, w, m, n, k, end, rows, columns, x_m, 1, w_n, 1, BLOCK_K, DESCRIPTORS, True, EVEN_K)
        part = tl.dot(a, b, max_num_imprecise_acc=IMPRECISE)
        block = k // 128
        acc += part * tl.load(of_rows + block * xs_k)[:, None] * tl.load(of_columns + block * ws_k)[None, :]
    return acc


@triton.jit
def _one_tile(x, w, y, bias, x_scale, w_scale, sums, locks, tile, M, N, K, x_m, w_n, xs_m, xs_k, ws_n, ws_k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr, DESCRIPTORS: tl.constexpr, EVEN_K: tl.constexpr, X_BLOCK: tl.constexpr, BLOCKS: tl.constexpr, X_ROWS: tl.constexpr, W_ROWS: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr, IMPRECISE: tl.constexpr):
    m, n = tile_at(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    begin, end = part_of_k(K, BLOCK_K, SPLIT_K)
    if BLOCKS:
        acc = _accumulated_blocks(x, w, m, n, begin, end, M, N, x_m, w_n, x_scale, w_scale, xs_m, xs_k, ws_n, ws_k, BLOCK_M, BLOCK_N, BLOCK_K, DESCRIPTORS, EVEN_K, X_BLOCK, IMPRECISE)
    else:
        acc = accumulated(x, w, m, n, begin, end, M, N, x_m, 1, w_n, 1, BLOCK_M, BLOCK_N, BLOCK_K, DESCRIPTORS, True, EVEN_K, "tf32", IMPRECISE)
    acc, whole = gathered(sums, locks, acc, tile, M, N, BLOCK_M, BLOCK_N, SPLIT_K)
    if whole:
        rows, columns = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
        if not BLOCKS:
            if X_ROWS:
                acc *= tl.load(x_scale + rows * xs_m, rows < M, 0.0)[:, None]
            else:
                acc *= tl.load(x_scale)
            if W_ROWS:
                acc *= tl.load(w_scale + columns * ws_n, columns < N, 0.0)[None, :]
            else:
                acc *= tl.load(w_scale)
        if BIAS:
            acc += tl.load(bias + columns, columns < N, 0.0).to(tl.float32)[None, :]
        if ACTIVATION != "none":
            acc = activated(acc, ACTIVATION)
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        at = rows.to(tl.int64)[:, None] * N + columns[None, :]
        tl.store(y + at, acc.to(y.dtype.element_ty), inside)


def _suited(configs: Sequence[Any], named: dict[str, Any], **given: Any) -> list[Any]:
    known = {**named, **given}
    if known["BLOCKS"]:  # a tile of K must not have two scales
        configs = [one for one in configs if one.kwargs["BLOCK_K"] <= BLOCK]
    return suited_for(configs, known, deep=128)


@autotune(
    space=FP8_GEMM_SPACE,
    key=["M", "N", "K", "ALIGNED", "BLOCKS", "IMPRECISE"],
    buckets={"M": "pow2"},
    prune_configs_by={"early_config_prune": _suited},
)
@triton.jit
def fp8_gemm_kernel(
    x, w, y, bias, x_scale, w_scale, sums, locks, M, N, K, x_m, w_n, xs_m, xs_k, ws_n, ws_k,
    ALIGNED: tl.constexpr, EVEN_K: tl.constexpr, X_BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    X_ROWS: tl.constexpr, W_ROWS: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr, IMPRECISE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr, PERSISTENT: tl.constexpr, DESCRIPTORS: tl.constexpr,
):
    """y = act(x @ w.T * scales + bias), where x is M × K and w is N × K."""
    # The sum within a tile is carried over at its end.
    carried: tl.constexpr = None if IMPRECISE == 0 else (IMPRECISE if IMPRECISE < BLOCK_K else BLOCK_K)
    if DESCRIPTORS:
        x = tl.make_tensor_descriptor(x, [M, K], [x_m, 1], [BLOCK_M, BLOCK_K])
        w = tl.make_tensor_descriptor(w, [N, K], [w_n, 1], [BLOCK_N, BLOCK_K])
    if PERSISTENT:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
            _one_tile(x, w, y, bias, x_scale, w_scale, sums, locks, tile, M, N, K, x_m, w_n, xs_m, xs_k, ws_n, ws_k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K, DESCRIPTORS, EVEN_K, X_BLOCK, BLOCKS, X_ROWS, W_ROWS, BIAS, ACTIVATION, carried)
    else:
        _one_tile(x, w, y, bias, x_scale, w_scale, sums, locks, tl.program_id(0), M, N, K, x_m, w_n, xs_m, xs_k, ws_n, ws_k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K, DESCRIPTORS, EVEN_K, X_BLOCK, BLOCKS, X_ROWS, W_ROWS, BIAS, ACTIVATION, carried)


def in_blocks(rows: int, columns: int, x_scale: Any, w_scale: Any) -> bool:
    """Whether the scales of `rows` × K and `columns` × K are those of blocks."""
    both = ((x_scale, rows), (w_scale, columns))
    return any(one.ndim == 2 and (one.shape[1] > 1 or one.shape[0] not in (1, length)) for one, length in both)


def product(x: Any, w: Any, x_scale: Any, w_scale: Any, bias: Any, activation: str | None, out_dtype: Any, fast: bool) -> Any:
    """`x` is rows × K and `w` is N × K, both with contiguous rows. Scales are a number each, one for each row, or
    matrices with one for each block: 128 of K, and of x 1 or 128 rows, of w 128."""
    rows, depth = x.shape
    columns = w.shape[0]
    y = torch.empty(rows, columns, dtype=out_dtype, device=x.device)
    if not rows or not columns:
        return y
    blocks = in_blocks(rows, columns, x_scale, w_scale)
    x, w = (one if one.stride(1) == 1 else one.contiguous() for one in (x, w))
    sums, locks = workspace(x, columns, 1)
    if x.is_cuda:
        let_triton_allocate()
    programs = multiprocessors(x.device.index if x.is_cuda else None)
    strides = [(s.stride(0) if s.ndim else 0, s.stride(1) if s.ndim == 2 else 0) for s in (x_scale, w_scale)]
    fp8_gemm_kernel[grid_of(rows, columns, programs)](
        x, w, y, y if bias is None else bias, x_scale, w_scale, sums, locks, rows, columns, depth, x.stride(0), w.stride(0),
        *strides[0], *strides[1], ALIGNED=aligned(x, w), EVEN_K=depth % LONGEST_BLOCK_K == 0,
        X_BLOCK=BLOCK if blocks and x_scale.shape[0] < rows else 1, BLOCKS=blocks, X_ROWS=x_scale.numel() > 1, W_ROWS=w_scale.numel() > 1,
        BIAS=bias is not None, ACTIVATION=activation or "none", IMPRECISE=0 if fast else CARRIED_AFTER,
    )
    return y


@triton.jit
def _values(x, gate, i, end, ACTIVATION: tl.constexpr):
    """Of x, or of act(gate) * x."""
    value = tl.load(x + i, i < end, 0.0).to(tl.float32)
    if ACTIVATION != "none":
        value *= activated(tl.load(gate + i, i < end, 0.0).to(tl.float32), ACTIVATION)
    return value


@triton.jit
def _quantize_kernel(x, gate, y, scales, K, x_row, gate_row, GROUP, CHUNK: tl.constexpr, LARGEST: tl.constexpr, GIVEN: tl.constexpr, ACTIVATION: tl.constexpr):
    """One program for each row, or for each group of a row; with `GIVEN`, there is one scale and it is read."""
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x += row * x_row
    gate += row * gate_row
    begin = group * GROUP
    end = tl.minimum(begin + GROUP, K)
    if GIVEN:
        scale = tl.load(scales)
    else:
        largest = tl.zeros([CHUNK], tl.float32)
        for at in range(begin, end, CHUNK):
            size = tl.abs(_values(x, gate, at + tl.arange(0, CHUNK), end, ACTIVATION))
            largest = tl.maximum(largest, tl.where(size < float("inf"), size, 0.0))
        top = tl.max(largest, 0)
        scale = tl.where(top > 0, top / LARGEST, 1.0)
        tl.store(scales + row * tl.num_programs(1) + group, scale)
    for at in range(begin, end, CHUNK):
        i = at + tl.arange(0, CHUNK)
        value = _values(x, gate, i, end, ACTIVATION) / scale
        held = tl.minimum(tl.maximum(value, -LARGEST), LARGEST)
        tl.store(y + row * K + i, tl.where(value == value, held, value).to(y.dtype.element_ty), i < end)


def quantized(x: Any, dtype: Any, group: int | None, scale: Any, gate: Any = None, activation: str | None = None) -> tuple[Any, Any]:
    """Of rows × K: by rows, by `group` elements of a row, or with the one scale that is given; with a gate, of act(gate) * x."""
    rows, depth = x.shape
    y = torch.empty(rows, depth, dtype=dtype, device=x.device)
    width = group or max(1, depth)
    groups = -(-max(1, depth) // width)
    scales = torch.empty(rows, groups, dtype=torch.float32, device=x.device) if scale is None else scale
    if rows and depth:
        x = x if x.stride(1) == 1 else x.contiguous()
        gate = x if gate is None else gate if gate.stride(1) == 1 else gate.contiguous()
        chunk = min(_CHUNK, power(width))
        _quantize_kernel[rows, groups](
            x, gate, y, scales, depth, x.stride(0), gate.stride(0), GROUP=width, CHUNK=chunk, LARGEST=torch.finfo(dtype).max,
            GIVEN=scale is not None, ACTIVATION=activation or "none", num_warps=8 if chunk > 1024 else 4,
        )
    elif scale is None:
        scales.fill_(1)
    return y, scales

"""act(x @ gate.T) * (x @ up.T) in one kernel, with two accumulators; and the activation alone."""
# ruff: noqa: N803, E501 - parameters of kernels are written in capitals by custom
# fmt: off

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from whet.kernels.product_triton import LONGEST_BLOCK_K, aligned, grid_of, times_row
from whet.kernels.spaces import GATED_MLP_SPACE
from whet.kernels.tiles import (
    activated,
    is_last,
    keep_part,
    let_triton_allocate,
    multiprocessors,
    part_of_k,
    suited,
    sum_of_parts,
    tile_at,
    workspace,
)
from whet.targets.triton.decorator import autotune

_BLOCK = 1024


@triton.jit
def _accumulated(x, gate, up, m, n, begin, end, M, N, x_m, g_n, u_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DESCRIPTORS: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr):
    g = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    u = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    # Rows and columns beyond the end read others again, whose results are not stored.
    rows = ((m + tl.arange(0, BLOCK_M)) % M).to(tl.int64)
    columns = ((n + tl.arange(0, BLOCK_N)) % N).to(tl.int64)
    for k in range(begin, end, BLOCK_K):
        if DESCRIPTORS:
            a, b, c = x.load([m, k]), gate.load([n, k]).T, up.load([n, k]).T
        else:
            ks = k + tl.arange(0, BLOCK_K)
            left = x + rows[:, None] * x_m + ks[None, :]
            of_gate = gate + columns[None, :] * g_n + ks[:, None]
            of_up = up + columns[None, :] * u_n + ks[:, None]
            if EVEN_K:
                a, b, c = tl.load(left), tl.load(of_gate), tl.load(of_up)
            else:
                a = tl.load(left, ks[None, :] < end, 0.0)
                b = tl.load(of_gate, ks[:, None] < end, 0.0)
                c = tl.load(of_up, ks[:, None] < end, 0.0)
        g = tl.dot(a, b, g, input_precision=PRECISION)
        u = tl.dot(a, c, u, input_precision=PRECISION)
    return g, u


@triton.jit
def _one_tile(x, gate, up, y, sums, locks, tile, M, N, K, x_m, g_n, u_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr, DESCRIPTORS: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr, ACTIVATION: tl.constexpr):
    m, n = tile_at(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    begin, end = part_of_k(K, BLOCK_K, SPLIT_K)
    g, u = _accumulated(x, gate, up, m, n, begin, end, M, N, x_m, g_n, u_n, BLOCK_M, BLOCK_N, BLOCK_K, DESCRIPTORS, EVEN_K, PRECISION)
    whole = True
    if SPLIT_K > 1:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        keep_part(sums, g, tile, tiles, 0, BLOCK_M, BLOCK_N, 2)
        keep_part(sums, u, tile, tiles, 1, BLOCK_M, BLOCK_N, 2)
        whole = is_last(locks, tile, SPLIT_K)
        if whole:
            g = sum_of_parts(sums, tile, tiles, 0, BLOCK_M, BLOCK_N, 2, SPLIT_K)
            u = sum_of_parts(sums, tile, tiles, 1, BLOCK_M, BLOCK_N, 2, SPLIT_K)
    if whole:
        rows, columns = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        at = rows.to(tl.int64)[:, None] * N + columns[None, :]
        tl.store(y + at, (activated(g, ACTIVATION) * u).to(y.dtype.element_ty), inside)


@autotune(
    space=GATED_MLP_SPACE,
    key=["M", "N", "K", "ACTIVATION", "ALIGNED"],
    buckets={"M": "pow2"},
    prune_configs_by={"early_config_prune": suited},
)
@triton.jit
def gated_kernel(
    x, gate, up, y, sums, locks, M, N, K, x_m, g_n, u_n,
    ALIGNED: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr, PERSISTENT: tl.constexpr, DESCRIPTORS: tl.constexpr,
):
    if DESCRIPTORS:
        x = tl.make_tensor_descriptor(x, [M, K], [x_m, 1], [BLOCK_M, BLOCK_K])
        gate = tl.make_tensor_descriptor(gate, [N, K], [g_n, 1], [BLOCK_N, BLOCK_K])
        up = tl.make_tensor_descriptor(up, [N, K], [u_n, 1], [BLOCK_N, BLOCK_K])
    if PERSISTENT:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
            _one_tile(x, gate, up, y, sums, locks, tile, M, N, K, x_m, g_n, u_n, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K, DESCRIPTORS, EVEN_K, PRECISION, ACTIVATION)
    else:
        _one_tile(x, gate, up, y, sums, locks, tl.program_id(0), M, N, K, x_m, g_n, u_n, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K, DESCRIPTORS, EVEN_K, PRECISION, ACTIVATION)


@triton.jit
def _multiply_kernel(gate, up, y, n, g_row, u_row, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + row * g_row + at, at < n, 0.0).to(tl.float32)
    u = tl.load(up + row * u_row + at, at < n, 0.0).to(tl.float32)
    tl.store(y + row * n + at, (activated(g, ACTIVATION) * u).to(y.dtype.element_ty), at < n)


def gated(x: Any, gate: Any, up: Any, activation: str) -> Any:
    """`x` is rows × K, the weights are N × K; all have contiguous rows."""
    rows, depth = x.shape
    columns = gate.shape[0]
    y = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    if not rows or not columns:
        return y
    if not depth:
        return y.zero_()
    x, gate, up = (one if one.stride(1) == 1 else one.contiguous() for one in (x, gate, up))
    if rows == 1:
        return times_row(x, gate, up, activation)
    sums, locks = workspace(x, columns, 2)
    if x.is_cuda:
        let_triton_allocate()
    programs = multiprocessors(x.device.index if x.is_cuda else None)
    gated_kernel[grid_of(rows, columns, programs)](
        x, gate, up, y, sums, locks, rows, columns, depth, x.stride(0), gate.stride(0),
        up.stride(0), ALIGNED=aligned(x, gate, up), EVEN_K=depth % LONGEST_BLOCK_K == 0,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32", ACTIVATION=activation,
    )
    return y


def multiplied(gate: Any, up: Any, activation: str) -> Any:
    """act(gate) * up of two matrices, in one pass."""
    rows, columns = gate.shape
    y = torch.empty(rows, columns, dtype=gate.dtype, device=gate.device)
    if rows and columns:
        gate, up = (one if one.stride(1) == 1 else one.contiguous() for one in (gate, up))
        grid = rows, -(-columns // _BLOCK)
        _multiply_kernel[grid](gate, up, y, columns, gate.stride(0), up.stride(0), ACTIVATION=activation, BLOCK=_BLOCK)
    return y

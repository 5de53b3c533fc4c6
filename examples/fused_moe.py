"""The first product of a mixture-of-experts layer in Triton: each token by the experts it goes to.

whet tune examples/fused_moe.py:fused_moe --key M=256,N=7168,K=4096,E=8
"""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

import whet

EXPERTS_PER_TOKEN = 2

# Rows, columns and depth of a block, rows of blocks in a group, warps, stages.
_LISTED = (
    (64, 64, 32, 8, 4, 3),
    (16, 64, 64, 1, 4, 4),
    (16, 128, 64, 1, 4, 4),
    (16, 128, 128, 1, 4, 4),
    (16, 256, 64, 1, 8, 4),
    (32, 64, 128, 1, 4, 4),
    (32, 128, 64, 8, 4, 4),
    (64, 128, 64, 1, 4, 4),
    (64, 128, 64, 8, 4, 3),
    (64, 256, 64, 8, 8, 3),
    (128, 128, 64, 8, 8, 3),
    (128, 128, 64, 8, 4, 4),
    (128, 256, 64, 1, 8, 3),
    (128, 256, 64, 16, 8, 4),
)

CONFIGS = [
    triton.Config(
        {
            "BLOCK_SIZE_M": rows,
            "BLOCK_SIZE_N": columns,
            "BLOCK_SIZE_K": depth,
            "GROUP_SIZE_M": group,
        },
        num_warps=warps,
        num_stages=stages,
    )
    for rows, columns, depth, group, warps, stages in _LISTED
]


def inputs(M: int, N: int, K: int, E: int) -> tuple[Any, tuple[Any, ...]]:
    """The grid and the arguments of one launch, with experts drawn at random for each token."""
    torch.manual_seed(0)
    x = torch.randn((M, K), device="cuda", dtype=torch.float16)
    weights = torch.randn((E, 2 * N, K), device="cuda", dtype=torch.float16) / K**0.5
    routes = np.random.default_rng(0).random((M, E)).argsort(1)[:, :EXPERTS_PER_TOKEN].ravel()
    tokens = np.argsort(routes, kind="stable") // EXPERTS_PER_TOKEN
    counts = np.bincount(routes, minlength=E)
    ends = counts.cumsum()
    out = torch.empty((tokens.size, 2 * N), device="cuda", dtype=torch.float16)
    most = int(counts.max())

    def grid(meta: Mapping[str, int]) -> tuple[int]:
        rows = E * triton.cdiv(most, meta["BLOCK_SIZE_M"])
        return (rows * triton.cdiv(2 * N, meta["BLOCK_SIZE_N"]),)

    token, start, end = (
        torch.tensor(values.tolist(), device="cuda", dtype=torch.int32)
        for values in (tokens, ends - counts, ends)
    )
    return grid, (x, weights, out, token, start, end, most, M, N, K, E)


def reference(named: Mapping[str, Any]) -> dict[str, Any]:
    x, weights, tokens = named["x_ptr"], named["w_ptr"], named["token_ptr"]
    out = torch.empty_like(named["out_ptr"])
    for expert in range(named["E"]):
        mine = slice(int(named["start_ptr"][expert]), int(named["end_ptr"][expert]))
        out[mine] = x[tokens[mine].long()] @ weights[expert].T
    return {"out_ptr": out}


@whet.autotune(configs=CONFIGS, key=["M", "N", "K", "E"], inputs=inputs, check=reference)
@triton.jit
def fused_moe(
    x_ptr,  # M × K
    w_ptr,  # E × 2N × K: gate and up together, so that N is what the second product sums over
    out_ptr,  # one row for each token and each of its experts, sorted by expert
    token_ptr,  # which row of x that is
    start_ptr,
    end_ptr,
    most,  # rows of the busiest expert
    M,
    N,
    K,
    E,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    program = tl.program_id(0)
    blocks_per_expert = tl.cdiv(most, BLOCK_SIZE_M)
    blocks_m = E * blocks_per_expert
    in_group = GROUP_SIZE_M * tl.cdiv(2 * N, BLOCK_SIZE_N)
    first_m = program // in_group * GROUP_SIZE_M
    group_rows = min(blocks_m - first_m, GROUP_SIZE_M)
    block_m = first_m + program % in_group % group_rows
    block_n = program % in_group // group_rows

    expert = block_m // blocks_per_expert
    end = tl.load(end_ptr + expert)
    first = tl.load(start_ptr + expert) + block_m % blocks_per_expert * BLOCK_SIZE_M
    if first >= end:
        return
    rows = first + tl.arange(0, BLOCK_SIZE_M)
    columns = block_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    depth = tl.arange(0, BLOCK_SIZE_K)
    token = tl.load(token_ptr + rows, mask=rows < end, other=0)
    x_ptrs = x_ptr + token[:, None] * K + depth[None, :]
    w_expert = w_ptr + expert.to(tl.int64) * 2 * N * K
    # Beyond the last column any other will do: its sums are not stored.
    w_ptrs = w_expert + (columns % (2 * N))[None, :] * K + depth[:, None]
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_SIZE_K):
        x = tl.load(x_ptrs, mask=depth[None, :] < K - k, other=0.0)
        w = tl.load(w_ptrs, mask=depth[:, None] < K - k, other=0.0)
        total = tl.dot(x, w, total)
        x_ptrs += BLOCK_SIZE_K
        w_ptrs += BLOCK_SIZE_K
    out_ptrs = out_ptr + rows[:, None].to(tl.int64) * (2 * N) + columns[None, :]
    inside = (rows[:, None] < end) & (columns[None, :] < 2 * N)
    tl.store(out_ptrs, total.to(tl.float16), mask=inside)

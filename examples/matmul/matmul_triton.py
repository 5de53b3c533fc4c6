"""A matrix product in Triton, fp16 with fp32 sums, checked against torch. `whet demo` tunes it.

whet tune examples/matmul/matmul_triton.py:matmul_fp16 --key M=4096,N=4096,K=4096
"""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

import whet

# Rows, columns and depth of a block, stages, warps. The first is what one would write without
# tuning; the last few need more shared memory than some GPUs have, and are then refused.
_LISTED = (
    (64, 64, 32, 3, 4),
    (32, 64, 32, 5, 2),
    (64, 32, 32, 5, 2),
    (128, 32, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (128, 64, 32, 4, 4),
    (128, 128, 32, 4, 4),
    (64, 256, 32, 4, 4),
    (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (128, 128, 64, 3, 4),
    (128, 128, 64, 4, 8),
    (64, 256, 64, 3, 4),
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 256, 64, 4, 8),
)

CONFIGS = [
    triton.Config(
        {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP_M": 8},
        num_stages=stages,
        num_warps=warps,
    )
    for rows, columns, depth, stages, warps in _LISTED
]


def inputs(M: int, N: int, K: int) -> tuple[Any, tuple[Any, ...]]:
    """The grid and the arguments of one launch. Never zeros: those draw less power."""
    torch.manual_seed(0)
    a = torch.randn((M, K), device="cuda", dtype=torch.float16)
    b = torch.randn((K, N), device="cuda", dtype=torch.float16)
    c = torch.empty((M, N), device="cuda", dtype=torch.float16)

    def grid(meta: Mapping[str, int]) -> tuple[int]:
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    return grid, (a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0))


def reference(named: Mapping[str, Any]) -> dict[str, Any]:
    return {"c_ptr": torch.matmul(named["a_ptr"], named["b_ptr"])}


@whet.autotune(configs=CONFIGS, key=["M", "N", "K"], inputs=inputs, check=reference)
@triton.jit
def matmul_fp16(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_a,
    stride_b,
    stride_c,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # GROUP_M rows of blocks are done column by column: what one program has read of A and B is
    # then still in the L2 for the programs next to it.
    program = tl.program_id(0)
    blocks_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first_m = program // in_group * GROUP_M
    group_rows = min(blocks_m - first_m, GROUP_M)
    block_m = first_m + program % in_group % group_rows
    block_n = program % in_group // group_rows

    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    # Beyond the edges any row or column will do: its products are not stored.
    a_ptrs = a_ptr + (rows % M)[:, None] * stride_a + depth[None, :]
    b_ptrs = b_ptr + depth[:, None] * stride_b + (columns % N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=depth[None, :] < K - k, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < K - k, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_b
    c_ptrs = c_ptr + rows[:, None] * stride_c + columns[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, total.to(tl.float16), mask=inside)


def torch_product(n: int) -> Callable[[], Any]:
    """torch's own product of the same matrices, to be called and timed."""
    _, (a, b, c, *_) = inputs(n, n, n)
    return lambda: torch.matmul(a, b, out=c)

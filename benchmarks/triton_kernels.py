"""The Triton tutorial's fp16 matrix product, undecorated, and a list of configs for it.

The first eight configs are the tutorial's for fp16; the other eight are those it gives for fp8, of
which several ask for more shared memory than a block can have when the operands are fp16.
"""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_META = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")

# The four of _META, then stages and warps.
_LISTED = (
    (128, 256, 64, 8, 3, 8),
    (64, 256, 32, 8, 4, 4),
    (128, 128, 32, 8, 4, 4),
    (128, 64, 32, 8, 4, 4),
    (64, 128, 32, 8, 4, 4),
    (128, 32, 32, 8, 4, 4),
    (64, 32, 32, 8, 5, 2),
    (32, 64, 32, 8, 5, 2),
    (128, 256, 128, 8, 3, 8),
    (256, 128, 128, 8, 3, 8),
    (256, 64, 128, 8, 4, 4),
    (64, 256, 128, 8, 4, 4),
    (128, 128, 128, 8, 4, 4),
    (128, 64, 64, 8, 4, 4),
    (64, 128, 64, 8, 4, 4),
    (128, 32, 64, 8, 4, 4),
)

KEY = ("M", "N", "K")


def tutorial_configs() -> list[Any]:
    """Fresh objects each time, since an autotuner may keep the list it is given."""
    return [
        triton.Config(dict(zip(_META, numbers, strict=True)), num_stages=stages, num_warps=warps)
        for *numbers, stages, warps in _LISTED
    ]


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    # Neighbouring programs share rows of A and columns of B: GROUP_SIZE_M rows of blocks are done
    # column by column, so that what one program read is still in L2 for the next.
    pid = tl.program_id(axis=0)
    blocks_m = tl.cdiv(M, BLOCK_SIZE_M)
    blocks_n = tl.cdiv(N, BLOCK_SIZE_N)
    group_blocks = GROUP_SIZE_M * blocks_n
    first_m = (pid // group_blocks) * GROUP_SIZE_M
    group_rows = min(blocks_m - first_m, GROUP_SIZE_M)
    pid_m = first_m + (pid % group_blocks) % group_rows
    pid_n = (pid % group_blocks) // group_rows

    rows = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    columns = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    depth = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (rows[:, None] * stride_am + depth[None, :] * stride_ak)
    b_ptrs = b_ptr + (depth[:, None] * stride_bk + columns[None, :] * stride_bn)

    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_SIZE_K)):
        a = tl.load(a_ptrs, mask=depth[None, :] < K - k * BLOCK_SIZE_K, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < K - k * BLOCK_SIZE_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    c = accumulator.to(tl.float16)

    rows_c = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    columns_c = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = c_ptr + stride_cm * rows_c[:, None] + stride_cn * columns_c[None, :]
    tl.store(c_ptrs, c, mask=(rows_c[:, None] < M) & (columns_c[None, :] < N))


@triton.jit
def add_one_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=inside) + 1, mask=inside)


@triton.jit
def scale_add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(y_ptr + offsets, x * 0.5 + 1.0, mask=inside)


@triton.jit
def row_sum_kernel(x_ptr, sum_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    within = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        inside = start + within < columns
        total += tl.load(x_ptr + row * columns + start + within, mask=inside, other=0.0)
    tl.store(sum_ptr + row, tl.sum(total, axis=0))


def matmul_inputs(size: int) -> tuple[Any, Any, Any]:
    """Two random operands and room for their product. Never zeros: those draw less power."""
    torch.manual_seed(0)
    a, b = (torch.randn((size, size), device="cuda", dtype=torch.float16) for _ in range(2))
    return a, b, torch.empty_like(a)


def matmul_arguments(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    """What `matmul_kernel` takes before its constants."""
    (m, k), n = a.shape, b.shape[1]
    return (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())


def matmul_grid(m: int, n: int) -> Any:
    def grid(meta: Any) -> tuple[int]:
        return (triton.cdiv(m, meta["BLOCK_SIZE_M"]) * triton.cdiv(n, meta["BLOCK_SIZE_N"]),)

    return grid


def relative_error(a: Any, b: Any, c: Any) -> float:
    """The largest difference to `torch.matmul`, relative to its largest element."""
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    expected = torch.matmul(a, b).float()
    return float((c.float() - expected).abs().max() / expected.abs().max())


def wake_device() -> None:
    """Everything that a process pays once, whatever it runs: context, driver, compiler tools."""
    x = torch.zeros(1024, device="cuda")
    add_one_kernel[(1,)](x, x.numel(), BLOCK=1024)
    torch.cuda.synchronize()

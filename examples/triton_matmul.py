"""A matrix product in Triton: fp16 with fp32 sums, checked against torch.

On a machine with a GPU:

    whet tune examples/triton_matmul.py:matmul --key M=4096,N=4096,K=4096
    whet run examples/triton_matmul.py

On a machine without one, compile every config and see what it would use:

    whet precompile examples/triton_matmul.py:matmul --arch h100 --key M=4096,N=4096,K=4096
"""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803, N806

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

import whet

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=stages)
    for m, n, k, warps, stages in (
        (64, 64, 32, 4, 3),  # the first is what is used where nothing may be tuned
        (64, 128, 32, 4, 4),
        (128, 64, 32, 4, 4),
        (128, 128, 32, 4, 4),
        (128, 128, 64, 4, 3),
        (128, 128, 64, 8, 4),
        (64, 256, 64, 4, 3),
        (128, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
    )
]


def inputs(M: int, N: int, K: int, dtype: str = "float16") -> tuple[Any, tuple[Any, ...]]:
    """The arguments of one launch, for `whet tune`, `whet verify` and `whet precompile`.

    Called with what `--key M=…,N=…,K=…` says, by name. Returns `(grid, args)`, or
    `(grid, args, kwargs)`: what one would write as `matmul[grid](*args, **kwargs)`. The grid is a
    tuple of numbers or a function of the config; `args` are the kernel's, in its order, up to the
    first that a config sets.
    """
    kind = getattr(torch, dtype)
    a = torch.randn((M, K), device="cuda", dtype=kind)
    b = torch.randn((K, N), device="cuda", dtype=kind)
    c = torch.empty((M, N), device="cuda", dtype=kind)

    def grid(meta: Mapping[str, int]) -> tuple[int, int]:
        return triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"])

    return grid, (a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0))


def reference(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the kernel must have written, by the name of the argument it writes to."""
    return {"c_ptr": arguments["a_ptr"] @ arguments["b_ptr"]}


@whet.autotune(configs=CONFIGS, key=["M", "N", "K"], inputs=inputs, check=reference)
@triton.jit
def matmul(
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
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + depth
        a = tl.load(
            a_ptr + rows[:, None] * stride_a + k[None, :],
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + k[:, None] * stride_b + columns[None, :],
            mask=(k[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(a, b, total)
    tl.store(
        c_ptr + rows[:, None] * stride_c + columns[None, :],
        total.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit(
            "There is no GPU here to run on. This compiles the kernel for one:\n"
            "  whet precompile examples/triton_matmul.py:matmul --arch h100 "
            "--key M=4096,N=4096,K=4096"
        )
    M = N = K = 4096
    grid, args = inputs(M, N, K)
    a, b, c = args[:3]
    matmul[grid](*args)  # tunes at the first call, and knows the answer from then on
    torch.testing.assert_close(c, a @ b, atol=0.5, rtol=1e-2)
    seconds = triton.testing.do_bench(lambda: matmul[grid](*args)) / 1e3
    print(f"{M} × {N} × {K}: {2e-12 * M * N * K / seconds:.0f} TFLOP/s with {matmul.best_config}")


if __name__ == "__main__":
    main()

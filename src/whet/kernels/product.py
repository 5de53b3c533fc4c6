"""A matrix product, by whoever is fastest."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from whet.kernels import ops, product_triton
from whet.kernels.checks import (
    WAIT_LIMIT,
    as_rows,
    check_tensors,
    limit_waits,
    shape,
    use_shipped_results,
    wrong,
)
from whet.targets.choice import adapters
from whet.targets.choice.choice import choice

_NAME = "gemm"
_wrong = partial(wrong, _NAME)


def gemm(a: Any, b: Any) -> Any:
    """a @ b, where a is … × K and b is K × N, by cuBLAS, a Triton kernel or CUTLASS.

    The layout of b may be any: `gemm(x, weight.t())` is `torch.nn.functional.linear(x, weight)`.
    """
    if getattr(a, "is_cuda", False):
        return chosen(a, b)
    _check(a, b)
    return reference(a, b)


def _check(a: Any, b: Any) -> None:
    check_tensors(_NAME, a=a, b=b)
    if a.ndim < 1:
        raise _wrong("a is a number; give … × K")
    if b.ndim != 2:
        raise _wrong(f"b is {shape(b)}; give K×N")
    if a.shape[-1] != b.shape[0]:
        raise _wrong(f"a is {shape(a)} and b {shape(b)}; a's last dimension must be b's first")


def reference(a: Any, b: Any) -> Any:
    return torch.matmul(a, b)


def _run(a: Any, b: Any) -> Any:
    run = ops.gemm if torch.compiler.is_compiling() else product_triton.product
    return run(a, b)


class _Product(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        return _run(a, b)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, Any]:
        a, b = ctx.saved_tensors
        [grad] = grads
        left = grad @ b.t() if ctx.needs_input_grad[0] else None
        right = a.t() @ grad if ctx.needs_input_grad[1] else None
        return left, right


def by_triton(a: Any, b: Any) -> Any:
    rows = as_rows(a)
    needed = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    made = _Product.apply(rows, b) if needed else _run(rows, b)
    return made.view(*a.shape[:-1], b.shape[1])


def _key(a: Any, b: Any) -> dict[str, Any]:
    _check(a, b)
    return {
        "m": a.numel() // max(1, a.shape[-1]),
        "k": b.shape[0],
        "n": b.shape[1],
        "dtype": str(a.dtype).removeprefix("torch."),
        "transposed": b.stride(0) == 1,
    }


chosen = choice(
    {"cublas": reference, "triton": by_triton, **adapters.matmul()},
    name=_NAME,
    key=_key,
    buckets={"m": "pow2"},
    wait_limit=WAIT_LIMIT,
)

limit_waits(product_triton.gemm_kernel, product_triton.row_kernel)
use_shipped_results()

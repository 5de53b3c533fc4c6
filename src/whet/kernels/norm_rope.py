"""RMS norm followed by rotary position embedding."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from whet.kernels import norm_rope_triton, ops
from whet.kernels.checks import (
    WAIT_LIMIT,
    check_tensors,
    limit_waits,
    shape,
    use_shipped_results,
    wrong,
)
from whet.targets.choice.choice import choice

_NAME = "rmsnorm_rope"
_wrong = partial(wrong, _NAME)


def rmsnorm_rope(
    x: Any,
    weight: Any,
    cos: Any,
    sin: Any,
    *,
    eps: float = 1e-6,
    head_dim: int | None = None,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    residual: Any = None,
    key: Any = None,
    key_weight: Any = None,
) -> Any:
    """RMS norm and rotary embedding in one pass over memory.

    Of heads: `x` is … × tokens × heads × head_dim and `weight` has head_dim elements; each head is
    normed by itself, then rotated, as Qwen3 does with queries and keys. With `key`, which may have
    fewer heads, and `key_weight`, both are done in one launch, and both are returned.

    Of rows: with `head_dim`, `x` is … × tokens × hidden and `weight` has hidden elements; the row
    is normed, and each head in it is rotated. With `residual`, which has the shape of x, their sum
    is normed, and the result is a pair: the output and the sum.

    `cos` and `sin` are tokens × angles, or … × tokens × angles like x, where angles is half of
    `rotary_dim`, or all of it if the table has every angle twice. The first `rotary_dim` elements
    of a head are rotated (default: all of it): its two halves against each other, or neighbours if
    `interleaved`. Everything is computed in float32 and rounded once.
    """
    on_gpu = getattr(x, "is_cuda", False)
    if not on_gpu:  # a choice does so for the first call of a kind
        _check(x, weight, cos, sin, residual, key, key_weight, head_dim, rotary_dim)
    run = chosen if on_gpu else reference
    return run(
        x, weight, cos, sin, eps, head_dim, rotary_dim, interleaved, residual, key, key_weight
    )


fused_rmsnorm_rope = rmsnorm_rope


def _check(
    x: Any,
    weight: Any,
    cos: Any,
    sin: Any,
    residual: Any,
    key: Any,
    key_weight: Any,
    head_dim: int | None,
    rotary_dim: int | None,
) -> None:
    check_tensors(_NAME, x=x, weight=weight, residual=residual, key=key, key_weight=key_weight)
    per_head = head_dim is None
    if not (x.ndim >= (3 if per_head else 2)):
        raise _wrong(
            f"x is {shape(x)}; give …×tokens×heads×head_dim, or head_dim= and …×tokens×hidden"
        )
    width = x.shape[-1] if head_dim is None else head_dim
    if not (width > 0 and x.shape[-1] % width == 0):
        raise _wrong(
            f"head_dim is {width}, which does not divide the {x.shape[-1]} elements of a row"
        )
    if weight.shape != x.shape[-1:]:
        raise _wrong(
            f"weight is {shape(weight)}; it needs the {x.shape[-1]} elements of x's last dimension"
        )
    rotary = width if rotary_dim is None else rotary_dim
    if not (0 <= rotary <= width and rotary % 2 == 0):
        raise _wrong(
            f"rotary_dim is {rotary}; give an even number up to head_dim, which is {width}"
        )
    tokens = tuple(x.shape[: -2 if per_head else -1])
    for name, table in (("cos", cos), ("sin", sin)):
        _check_table(name, table, tokens, rotary, x.device)
    if cos.shape != sin.shape:
        raise _wrong(f"cos is {shape(cos)} and sin {shape(sin)}")
    if residual is not None and (per_head or residual.shape != x.shape):
        raise _wrong("residual needs head_dim= and the shape of x")
    _check_key(x, weight, key, key_weight, per_head)


def _check_table(name: str, table: Any, tokens: tuple[int, ...], rotary: int, device: Any) -> None:
    if not isinstance(table, torch.Tensor):
        raise _wrong(f"{name} is a {type(table).__name__}; give a tensor")
    fits = table.shape[-1:] in ((rotary // 2,), (rotary,))
    if not fits or table.shape[:-1] not in (tokens, tokens[-1:]) or table.device != device:
        rows = tokens[-1]
        raise _wrong(
            f"{name} is {shape(table)} on {table.device}; give {rows}×{rotary // 2} or "
            f"{rows}×{rotary} on {device}"
        )


def _check_key(x: Any, weight: Any, key: Any, key_weight: Any, per_head: bool) -> None:
    if (key is None) != (key_weight is None):
        raise _wrong("key needs key_weight, and the reverse")
    if key is None:
        return
    if not per_head or key.shape[:-2] != x.shape[:-2] or key.shape[-1] != x.shape[-1]:
        raise _wrong(
            f"key is {shape(key)} and x {shape(x)}; they may differ in the number of heads only, "
            "and head_dim= is not for them"
        )
    if key_weight.shape != weight.shape:
        raise _wrong(f"key_weight is {shape(key_weight)} and weight {shape(weight)}")


def _through(
    run: Callable[..., tuple[Any, Any, Any]],
    x: Any,
    weight: Any,
    cos: Any,
    sin: Any,
    eps: float,
    head_dim: int | None,
    rotary_dim: int | None,
    interleaved: bool,
    residual: Any = None,
    key: Any = None,
    key_weight: Any = None,
) -> Any:
    """What `rmsnorm_rope` returns, by one that takes batch × tokens × heads × width."""
    rotary = rotary_dim if rotary_dim is not None else head_dim or x.shape[-1]
    half = rotary // 2
    view = _four(x, head_dim)
    y, summed, other = run(
        view,
        weight,
        _table(cos, half),
        _table(sin, half),
        eps,
        half,
        interleaved,
        head_dim is not None,
        None if residual is None else residual.reshape(*view.shape[:2], x.shape[-1]),
        None if key is None else _four(key, None),
        key_weight,
    )
    first = _like(x, y)
    if residual is not None:
        return first, _like(x, summed)
    return first if key is None else (first, _like(key, other))


def _four(x: Any, head_dim: int | None) -> Any:
    """As batch × tokens × heads × width, a view where x can be one."""
    sizes = x.shape
    if head_dim is not None:
        sizes = (*sizes[:-1], sizes[-1] // head_dim, head_dim) if sizes[-1] else (*sizes, 1)
    if len(sizes) == 3:
        sizes = (1, *sizes)
    rows = x if len(sizes) == x.ndim else x.view(sizes)
    if rows.stride(-1) != 1 and rows.shape[-1] > 1:
        rows = rows.contiguous()
    return rows if rows.ndim == 4 else rows.flatten(0, -4)


def _like(x: Any, out: Any) -> Any:
    if x.ndim == 4 and out.shape == x.shape:
        return out
    return out.view(x.shape) if out.is_contiguous() else out.reshape(x.shape)


def _table(table: Any, half: int) -> Any:
    """Rows of angles; those of one batch serve all batches."""
    rows = table if table.ndim == 2 else table.flatten(0, -2)
    return rows if rows.stride(-1) == 1 or not half else rows.contiguous()


def reference(*arguments: Any) -> Any:
    """The same in plain torch."""
    return _through(_in_torch, *arguments)


def fused(*arguments: Any) -> Any:
    """The Triton kernels."""
    return _through(_fused, *arguments)


def _in_torch(
    x: Any,
    weight: Any,
    cos: Any,
    sin: Any,
    eps: float,
    half: int,
    interleaved: bool,
    whole_row: bool,
    residual: Any = None,
    second: Any = None,
    second_weight: Any = None,
) -> tuple[Any, Any, Any]:
    summed = x if residual is None else x + residual.view(x.shape)
    y = _plain(summed, weight, cos, sin, eps, half, interleaved, whole_row)
    other = None
    if second is not None:
        other = _plain(second, second_weight, cos, sin, eps, half, interleaved, whole_row)
    return y, None if residual is None else summed, other


def _plain(
    x: Any, weight: Any, cos: Any, sin: Any, eps: float, half: int, interleaved: bool, whole: bool
) -> Any:
    if not x.numel():
        return torch.empty_like(x) * weight.sum()  # a gradient of zero is one, too
    wide = x.float()
    over = (-2, -1) if whole else (-1,)
    normed = wide * torch.rsqrt(wide.square().mean(over, keepdim=True) + eps)
    normed = normed * weight.float().view(x.shape[-2:] if whole else (x.shape[-1],))
    if not half:
        return normed.to(x.dtype)
    angles = slice(None, None, 2) if interleaved and cos.shape[-1] == 2 * half else slice(half)
    c, s = (
        table.float()[:, angles].view(-1, x.shape[1], 1, half).expand(x.shape[0], -1, -1, -1)
        for table in (cos, sin)
    )
    turned, rest = normed[..., : 2 * half], normed[..., 2 * half :]
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
        turned = torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)
    else:
        a, b = turned[..., :half], turned[..., half:]
        turned = torch.cat([a * c - b * s, b * c + a * s], -1)
    return torch.cat([turned, rest], -1).to(x.dtype)


def _run(*arguments: Any) -> tuple[Any, Any, Any]:
    """What there is of y, the sum and the second tensor's y."""
    given = (*arguments, *[None] * (11 - len(arguments)))
    run = ops.normed if torch.compiler.is_compiling() else norm_rope_triton.forward
    y, summed, other = run(*given)
    return y, None if given[8] is None else summed, None if given[9] is None else other


def _run_backward(*arguments: Any) -> tuple[Any, Any]:
    given = (*arguments, *[None] * (10 - len(arguments)))
    run = ops.normed_backward if torch.compiler.is_compiling() else norm_rope_triton.backward
    found: tuple[Any, Any] = run(*given)
    return found


class _Fused(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Any, Any, Any]:
        x, weight, cos, sin, eps, half, interleaved, whole, residual, second, second_weight = (
            arguments
        )
        y, summed, other = _run(
            x, weight, cos, sin, eps, half, interleaved, whole, residual, second, second_weight
        )
        normed = x if residual is None else summed
        ctx.save_for_backward(normed, weight, cos, sin, second, second_weight)
        ctx.rest = (eps, half, interleaved, whole)
        ctx.added = residual is not None
        return y, summed, other

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        dy, dsum, dother = grads
        x, weight, cos, sin, second, second_weight = ctx.saved_tensors
        added = dsum if ctx.added else None
        eps, half, interleaved, whole = ctx.rest
        dx, dw = _run_backward(x, weight, cos, sin, eps, half, interleaved, whole, dy, added)
        dsecond = dsecond_weight = None
        if second is not None:
            dsecond, dsecond_weight = _run_backward(
                second, second_weight, cos, sin, eps, half, interleaved, whole, dother
            )
        dresidual = dx.flatten(2) if ctx.added else None
        return (dx, dw, None, None, *[None] * 4, dresidual, dsecond, dsecond_weight)


def _fused(*arguments: Any) -> tuple[Any, Any, Any]:
    """With what autograd needs only where it is at work."""
    needed = torch.is_grad_enabled() and any(
        [one is not None and one.requires_grad for one in (*arguments[:4], *arguments[8:])]  # noqa: C419
    )
    if needed:
        found: tuple[Any, Any, Any] = _Fused.apply(*arguments)
        return found
    return _run(*arguments)


def _key(
    x: Any,
    weight: Any,
    cos: Any,
    sin: Any,
    eps: float,
    head_dim: int | None,
    rotary_dim: int | None,
    interleaved: bool,
    residual: Any,
    key: Any,
    key_weight: Any,
) -> dict[str, Any]:
    _check(x, weight, cos, sin, residual, key, key_weight, head_dim, rotary_dim)
    width = head_dim or x.shape[-1]
    sizes = x.shape if head_dim is None else (*x.shape[:-1], x.shape[-1] // head_dim, head_dim)
    return {
        "tokens": math.prod(sizes[:-2]),
        "heads": sizes[-2],
        "key_heads": 0 if key is None else key.shape[-2],
        "width": sizes[-1],
        "half": (width if rotary_dim is None else rotary_dim) // 2,
        "dtype": str(x.dtype).removeprefix("torch."),
        "interleaved": interleaved,
        "whole_row": head_dim is not None,
        "residual": residual is not None,
    }


chosen = choice(
    {"triton": fused, "torch": reference},
    name=_NAME,
    key=_key,
    reference=reference,
    buckets={"tokens": "pow2"},
    wait_limit=WAIT_LIMIT,
)

limit_waits(norm_rope_triton.rmsnorm_rope_kernel)
use_shipped_results()

"""Softmax attention, by whoever is fastest."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from whet.kernels import ops, sdpa_triton
from whet.kernels.checks import (
    WAIT_LIMIT,
    check_tensors,
    limit_waits,
    shape,
    use_shipped_results,
    wrong,
)
from whet.targets.choice import adapters
from whet.targets.choice.choice import choice

_NAME = "attention"
_wrong = partial(wrong, _NAME)

WIDEST = 256


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None) -> Any:
    """softmax(q @ k.T * scale) @ v, by one of SDPA's backends, a Triton kernel or FlashInfer.

    All are batch × heads × tokens × dim. `k` and `v` may have fewer heads, each shared by as many
    of q's. With `causal`, query i sees the keys up to i, as in `scaled_dot_product_attention`.
    `scale` defaults to one over the root of dim.
    """
    if getattr(q, "is_cuda", False):
        return chosen(q, k, v, causal, scale)
    _check(q, k, v)
    return reference(q, k, v, causal, scale)


def _check(q: Any, k: Any, v: Any) -> None:
    check_tensors(_NAME, q=q, k=k, v=v)
    for name, one in (("q", q), ("k", k), ("v", v)):
        if one.ndim != 4:
            raise _wrong(f"{name} is {shape(one)}; give batch×heads×tokens×dim")
    if k.shape != v.shape:
        raise _wrong(f"k is {shape(k)} and v {shape(v)}; they must be alike")
    if not (q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]):
        raise _wrong(f"q is {shape(q)} and k {shape(k)}; batch and dim must be the same")
    if not (0 < q.shape[3] <= WIDEST):
        raise _wrong(f"dim is {q.shape[3]}; it may be 1 to {WIDEST}")
    if not (k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0):
        raise _wrong(f"q has {q.shape[1]} heads and k {k.shape[1]}, which does not divide them")


def reference(q: Any, k: Any, v: Any, causal: bool, scale: float | None) -> Any:
    return functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )


def written_out(q: Any, k: Any, v: Any, causal: bool, scale: float | None) -> Any:
    """In plain torch, whatever backends there are."""
    shared_by = q.shape[1] // k.shape[1]
    k, v = (one.float().repeat_interleave(shared_by, 1) for one in (k, v))
    scores = q.float() @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).to(q.dtype)


def _by(backend: Any) -> Any:
    def by_backend(q: Any, k: Any, v: Any, causal: bool, scale: float | None) -> Any:
        with sdpa_kernel(backend):
            return reference(q, k, v, causal, scale)

    return by_backend


def _run(q: Any, k: Any, v: Any, causal: bool, scale: float | None) -> Any:
    run = ops.attended if torch.compiler.is_compiling() else sdpa_triton.attended
    return run(q, k, v, causal, scale)


class _Attended(torch.autograd.Function):  # type: ignore[misc]
    """The Triton kernel is a forward one; backward is SDPA's, from the same inputs."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool, scale: float | None) -> Any:
        ctx.save_for_backward(q, k, v)
        ctx.rest = (causal, scale)
        return _run(q, k, v, causal, scale)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        leaves = [one.detach().requires_grad_() for one in ctx.saved_tensors]
        with torch.enable_grad():
            again = reference(*leaves, *ctx.rest)
        return (*torch.autograd.grad(again, leaves, grads[0]), None, None)


def by_triton(q: Any, k: Any, v: Any, causal: bool, scale: float | None) -> Any:
    if torch.is_grad_enabled() and any(one.requires_grad for one in (q, k, v)):
        if torch.compiler.is_compiling():  # which cannot differentiate inside a backward
            return reference(q, k, v, causal, scale)
        return _Attended.apply(q, k, v, causal, scale)
    return _run(q, k, v, causal, scale)


def _key(q: Any, k: Any, v: Any, causal: bool, scale: float | None) -> dict[str, Any]:
    _check(q, k, v)
    return {
        "batch": q.shape[0],
        "heads": q.shape[1],
        "key_heads": k.shape[1],
        "queries": q.shape[2],
        "keys": k.shape[2],
        "dim": q.shape[3],
        "causal": causal,
        "dtype": str(q.dtype).removeprefix("torch."),
    }


_backends = {
    name.removesuffix("_attention").lower(): _by(getattr(SDPBackend, name.upper()))
    for name in ("flash_attention", "cudnn_attention", "efficient_attention")
    if hasattr(SDPBackend, name.upper())
}

chosen = choice(
    {"sdpa": reference, **_backends, "triton": by_triton, **adapters.attention()},
    name=_NAME,
    key=_key,
    buckets={"queries": "pow2", "keys": "pow2"},
    wait_limit=WAIT_LIMIT,
)

limit_waits(sdpa_triton.attention_kernel)
use_shipped_results()

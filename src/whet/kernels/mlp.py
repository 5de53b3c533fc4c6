"""The gated perceptron of today's language models."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, get_args

import torch
from torch.nn import functional

from whet.kernels import mlp_triton, ops
from whet.kernels.checks import (
    WAIT_LIMIT,
    Examined,
    as_rows,
    check_tensors,
    limit_waits,
    shape,
    use_shipped_results,
    wrong,
)
from whet.kernels.product import gemm
from whet.targets.choice import adapters
from whet.targets.choice.choice import choice

Activation = Literal["silu", "gelu", "gelu_tanh"]

_NAME = "gated_mlp"
_wrong = partial(wrong, _NAME)


def gated_mlp(
    x: Any,
    gate_weight: Any,
    up_weight: Any = None,
    down_weight: Any = None,
    *,
    activation: Activation = "silu",
) -> Any:
    """act(x @ gate.T) * (x @ up.T), and that @ down.T if there is a `down_weight`.

    `x` is … × hidden; `gate_weight` and `up_weight` are inner × hidden and `down_weight` is
    out × inner, as `torch.nn.Linear` has them. Without `up_weight`, `gate_weight` has the rows of
    both, those of the gate first. `silu` makes it SwiGLU, `gelu` and `gelu_tanh` GeGLU.
    """
    on_gpu = getattr(x, "is_cuda", False)
    if not on_gpu or x.ndim != 2 or down_weight is not None:  # what a choice checks is the rest
        _examined(x, gate_weight, up_weight, down_weight, activation)
    rows = as_rows(x)
    if up_weight is None:
        inner = (stacked if on_gpu else one_product)(rows, gate_weight, activation)
    else:
        inner = (apart if on_gpu else reference)(rows, gate_weight, up_weight, activation)
    if down_weight is not None:
        inner = gemm(inner, down_weight.t())
    return inner if x.ndim == 2 else inner.view(*x.shape[:-1], inner.shape[-1])


fused_gated_mlp = gated_mlp


def _check(x: Any, gate: Any, up: Any, down: Any, activation: str) -> None:
    check_tensors(_NAME, x=x, gate_weight=gate, up_weight=up, down_weight=down)
    if activation not in get_args(Activation):
        raise _wrong(f"activation is {activation!r}; give one of {', '.join(get_args(Activation))}")
    if x.ndim < 1:
        raise _wrong("x is a number; give … × hidden")
    if gate.ndim != 2 or gate.shape[1] != x.shape[-1]:
        raise _wrong(f"gate_weight is {shape(gate)}; give inner×{x.shape[-1]}, as x is {shape(x)}")
    inner = gate.shape[0]
    if up is None:
        if inner % 2:
            raise _wrong(f"gate_weight has {inner} rows, which are not two halves; give up_weight")
        inner //= 2
    elif up.shape != gate.shape:
        raise _wrong(f"up_weight is {shape(up)} and gate_weight {shape(gate)}; they must be alike")
    if down is not None and (down.ndim != 2 or down.shape[1] != inner):
        raise _wrong(f"down_weight is {shape(down)}; give out×{inner}")


_examined = Examined(_check, 4)


def activate(gate: Any, activation: str) -> Any:
    if activation == "silu":
        return functional.silu(gate)
    return functional.gelu(gate, approximate="tanh" if activation == "gelu_tanh" else "none")


def reference(x: Any, gate: Any, up: Any, activation: str) -> Any:
    """The same in plain torch, on rows × hidden."""
    return activate(functional.linear(x, gate), activation) * functional.linear(x, up)


def one_product(x: Any, both: Any, activation: str) -> Any:
    """Of the weights in one tensor, those of the gate first."""
    g, u = functional.linear(x, both).chunk(2, -1)
    return activate(g, activation) * u


def products_then_kernel(x: Any, gate: Any, up: Any, activation: str) -> Any:
    """cuBLAS twice, then one pass for the activation and the product."""
    return multiplied(functional.linear(x, gate), functional.linear(x, up), activation)


def product_then_kernel(x: Any, both: Any, activation: str) -> Any:
    g, u = functional.linear(x, both).chunk(2, -1)
    return multiplied(g, u, activation)


def _run_multiplied(gate: Any, up: Any, activation: str) -> Any:
    run = ops.multiplied if torch.compiler.is_compiling() else mlp_triton.multiplied
    return run(gate, up, activation)


def _run_gated(x: Any, gate: Any, up: Any, activation: str) -> Any:
    run = ops.gated if torch.compiler.is_compiling() else mlp_triton.gated
    return run(x, gate, up, activation)


class _Multiplied(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, gate: Any, up: Any, activation: str) -> Any:
        ctx.save_for_backward(gate, up)
        ctx.activation = activation
        return _run_multiplied(gate, up, activation)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, Any, None]:
        gate, up = ctx.saved_tensors
        return (*_gate_and_up(gate, up, ctx.activation, grads[0]), None)


def _gate_and_up(gate: Any, up: Any, activation: str, grad: Any) -> tuple[Any, Any]:
    """What act(gate) * up passes on to both."""
    aten, to_act = torch.ops.aten, grad * up
    if activation == "silu":
        to_gate = aten.silu_backward(to_act, gate)
    else:
        form = "tanh" if activation == "gelu_tanh" else "none"
        to_gate = aten.gelu_backward(to_act, gate, approximate=form)
    return to_gate, grad * activate(gate, activation)


def multiplied(gate: Any, up: Any, activation: str) -> Any:
    if torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad):
        return _Multiplied.apply(gate, up, activation)
    return _run_multiplied(gate, up, activation)


class _Gated(torch.autograd.Function):  # type: ignore[misc]
    """Backward computes gate and up anew: two products, in place of memory for both."""

    @staticmethod
    def forward(ctx: Any, x: Any, gate: Any, up: Any, activation: str) -> Any:
        ctx.save_for_backward(x, gate, up)
        ctx.activation = activation
        return _run_gated(x, gate, up, activation)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, Any, Any, None]:
        x, gate, up = ctx.saved_tensors
        g, u = functional.linear(x, gate), functional.linear(x, up)
        to_g, to_u = _gate_and_up(g, u, ctx.activation, grads[0])
        to_x = to_g @ gate + to_u @ up if ctx.needs_input_grad[0] else None
        to_gate = to_g.t() @ x if ctx.needs_input_grad[1] else None
        to_up = to_u.t() @ x if ctx.needs_input_grad[2] else None
        return to_x, to_gate, to_up, None


def by_triton(x: Any, gate: Any, up: Any, activation: str) -> Any:
    """Gate, up, activation and their product in one kernel."""
    if torch.is_grad_enabled() and any(one.requires_grad for one in (x, gate, up)):
        return _Gated.apply(x, gate, up, activation)
    return _run_gated(x, gate, up, activation)


def stacked_by_triton(x: Any, both: Any, activation: str) -> Any:
    gate, up = both.chunk(2)
    return by_triton(x, gate, up, activation)


def _with(activated: Any, stacked: bool) -> Any:
    """cuBLAS, and another library for the rest of SwiGLU."""

    def by_library(x: Any, *weights: Any) -> Any:
        *weights, activation = weights  # type: ignore[assignment]
        if activation != "silu":
            raise ValueError(f"this one is for silu, not {activation}")
        products = [functional.linear(x, weight) for weight in weights]
        return activated(*(products[0].chunk(2, -1) if stacked else products))

    return by_library


def _key(x: Any, *weights: Any) -> dict[str, Any]:
    gate, *up, activation = weights
    _check(x, gate, up[0] if up else None, None, activation)
    return {
        "m": x.shape[0],
        "k": x.shape[1],
        "n": gate.shape[0] // (1 if up else 2),
        "dtype": str(x.dtype).removeprefix("torch."),
        "activation": activation,
    }


def _libraries(stacked: bool) -> dict[str, Any]:
    return {f"cublas+{name}": _with(made, stacked) for name, made in adapters.swiglu().items()}


apart = choice(
    {
        "torch": reference,
        "cublas+kernel": products_then_kernel,
        "triton": by_triton,
        **_libraries(stacked=False),
    },
    name=_NAME,
    key=_key,
    buckets={"m": "pow2"},
    wait_limit=WAIT_LIMIT,
)

stacked = choice(
    {
        "torch": one_product,
        "cublas+kernel": product_then_kernel,
        "triton": stacked_by_triton,
        **_libraries(stacked=True),
    },
    name=f"{_NAME}_stacked",
    key=_key,
    buckets={"m": "pow2"},
    wait_limit=WAIT_LIMIT,
)

limit_waits(mlp_triton.gated_kernel)
use_shipped_results()

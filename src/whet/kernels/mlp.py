"""The gated perceptron of today's language models."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch.nn import functional

from whet.kernels import mlp_triton, ops
from whet.kernels.checks import as_rows, check_tensors, shape, wrong
from whet.kernels.product import gemm
from whet.kernels.shipped import use_shipped_results
from whet.targets.choice import adapters
from whet.targets.choice.choice import choice

Activation = Literal["silu", "gelu", "gelu_tanh"]

_NAME = "gated_mlp"


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
    gate, up = _checked(x, gate_weight, up_weight, down_weight, activation)
    run = (stacked if up_weight is None else apart) if x.is_cuda else reference
    inner = run(as_rows(x), gate, up, activation)
    if down_weight is not None:
        inner = gemm(inner, down_weight.t())
    return inner.view(*x.shape[:-1], inner.shape[-1])


fused_gated_mlp = gated_mlp


def _checked(x: Any, gate: Any, up: Any, down: Any, activation: str) -> tuple[Any, Any]:
    check_tensors(_NAME, x=x, gate_weight=gate, up_weight=up, down_weight=down)
    if activation not in get_args(Activation):
        raise wrong(
            _NAME, f"activation is {activation!r}; give one of {', '.join(get_args(Activation))}"
        )
    if x.ndim < 1:
        raise wrong(_NAME, "x is a number; give … × hidden")
    if not (gate.ndim == 2 and gate.shape[1] == x.shape[-1]):
        raise wrong(
            _NAME, f"gate_weight is {shape(gate)}; give inner×{x.shape[-1]}, as x is {shape(x)}"
        )
    if up is None:
        if gate.shape[0] % 2:
            raise wrong(
                _NAME,
                f"gate_weight has {gate.shape[0]} rows, which are not two halves; give up_weight",
            )
        gate, up = gate.chunk(2) if gate.shape[0] else (gate, gate)
    if up.shape != gate.shape:
        raise wrong(
            _NAME, f"up_weight is {shape(up)} and gate_weight {shape(gate)}; they must be alike"
        )
    if down is not None and (down.ndim != 2 or down.shape[1] != gate.shape[0]):
        raise wrong(_NAME, f"down_weight is {shape(down)}; give out×{gate.shape[0]}")
    return gate, up


def activate(gate: Any, activation: str) -> Any:
    if activation == "silu":
        return functional.silu(gate)
    return functional.gelu(gate, approximate="tanh" if activation == "gelu_tanh" else "none")


def reference(x: Any, gate: Any, up: Any, activation: str) -> Any:
    """The same in plain torch, on rows × hidden."""
    return activate(functional.linear(x, gate), activation) * functional.linear(x, up)


def _both(x: Any, gate: Any, up: Any) -> tuple[Any, Any]:
    """Two halves of one weight, in one product."""
    inner, hidden = gate.shape
    weight = torch.as_strided(gate, (2 * inner, hidden), gate.stride(), gate.storage_offset())
    g, u = functional.linear(x, weight).chunk(2, -1)
    return g, u


def one_product(x: Any, gate: Any, up: Any, activation: str) -> Any:
    g, u = _both(x, gate, up)
    return activate(g, activation) * u


def products_then_kernel(x: Any, gate: Any, up: Any, activation: str) -> Any:
    """cuBLAS twice, then one pass for the activation and the product."""
    return multiplied(functional.linear(x, gate), functional.linear(x, up), activation)


def product_then_kernel(x: Any, gate: Any, up: Any, activation: str) -> Any:
    g, u = _both(x, gate, up)
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


def _with(activated: Any) -> Any:
    """cuBLAS twice, and another library for the rest of SwiGLU."""

    def by_library(x: Any, gate: Any, up: Any, activation: str) -> Any:
        if activation != "silu":
            raise ValueError(f"this one is for silu, not {activation}")
        return activated(functional.linear(x, gate), functional.linear(x, up))

    return by_library


def _key(x: Any, gate: Any, up: Any, activation: str) -> dict[str, Any]:
    return {
        "m": x.shape[0],
        "k": x.shape[1],
        "n": gate.shape[0],
        "dtype": str(x.dtype).removeprefix("torch."),
        "activation": activation,
    }


_libraries = {f"cublas+{name}": _with(made) for name, made in adapters.swiglu().items()}

apart = choice(
    {
        "torch": reference,
        "cublas+kernel": products_then_kernel,
        "triton": by_triton,
        **_libraries,
    },
    name=_NAME,
    key=_key,
    buckets={"m": "pow2"},
)

stacked = choice(
    {
        "torch": one_product,
        "cublas+kernel": product_then_kernel,
        "triton": by_triton,
        **_libraries,
    },
    name=f"{_NAME}_stacked",
    key=_key,
    buckets={"m": "pow2"},
)

use_shipped_results()

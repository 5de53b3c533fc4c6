"""The Triton kernels as operators of torch, for torch.compile: it takes them as they are, and the
tuner runs when the compiled code does. Eager calls do without: an operator costs the host more than
many a kernel."""

import torch
from torch import Tensor

from whet.kernels import fp8_triton, mlp_triton, norm_rope_triton, product_triton, sdpa_triton

_op = torch.library.custom_op


@_op("whet::gemm", mutates_args=())
def gemm(x: Tensor, w: Tensor) -> Tensor:
    return product_triton.product(x, w)


@gemm.register_fake
def _(x, w):
    return x.new_empty(x.shape[0], w.shape[1])


@_op("whet::gated", mutates_args=())
def gated(x: Tensor, gate: Tensor, up: Tensor, activation: str) -> Tensor:
    return mlp_triton.gated(x, gate, up, activation)


@gated.register_fake
def _(x, gate, up, activation):
    return x.new_empty(x.shape[0], gate.shape[0])


@_op("whet::multiplied", mutates_args=())
def multiplied(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    return mlp_triton.multiplied(gate, up, activation)


@multiplied.register_fake
def _(gate, up, activation):
    return gate.new_empty(gate.shape)


@_op("whet::attended", mutates_args=())
def attended(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> Tensor:
    return sdpa_triton.attended(q, k, v, causal, scale)


@attended.register_fake
def _(q, k, v, causal, scale):
    return q.new_empty(q.shape)


@_op("whet::rmsnorm_rope", mutates_args=())
def normed(
    x: Tensor,
    weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    eps: float,
    half: int,
    interleaved: bool,
    whole_row: bool,
    residual: Tensor | None,
    second: Tensor | None,
    second_weight: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    y, summed, other = norm_rope_triton.forward(
        x, weight, cos, sin, eps, half, interleaved, whole_row, residual, second, second_weight
    )
    nothing = y.new_empty(0)
    return (
        y,
        nothing if residual is None else summed,
        nothing.clone() if second is None else other,
    )


@normed.register_fake
def _(x, weight, cos, sin, eps, half, interleaved, whole_row, residual, second, second_weight):
    return (
        x.new_empty(x.shape),
        x.new_empty(x.shape if residual is not None else 0),
        x.new_empty(second.shape if second is not None else 0),
    )


@_op("whet::rmsnorm_rope_backward", mutates_args=())
def normed_backward(
    x: Tensor,
    weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    eps: float,
    half: int,
    interleaved: bool,
    whole_row: bool,
    dy: Tensor,
    added: Tensor | None,
) -> tuple[Tensor, Tensor]:
    return norm_rope_triton.backward(
        x, weight, cos, sin, eps, half, interleaved, whole_row, dy, added
    )


@normed_backward.register_fake
def _(x, weight, cos, sin, eps, half, interleaved, whole_row, dy, added):
    return x.new_empty(x.shape), torch.empty_like(weight)


@_op("whet::fp8_gemm", mutates_args=())
def fp8_gemm(
    x: Tensor,
    w: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    bias: Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype,
    fast: bool,
) -> Tensor:
    return fp8_triton.product(x, w, x_scale, w_scale, bias, activation, out_dtype, fast)


@fp8_gemm.register_fake
def _(x, w, x_scale, w_scale, bias, activation, out_dtype, fast):
    return x.new_empty(x.shape[0], w.shape[0], dtype=out_dtype)


@_op("whet::quantized", mutates_args=())
def quantized(
    x: Tensor,
    dtype: torch.dtype,
    group: int | None,
    scale: Tensor | None,
    gate: Tensor | None,
    activation: str | None,
) -> tuple[Tensor, Tensor]:
    made, scales = fp8_triton.quantized(x, dtype, group, scale, gate, activation)
    return made, scales if scale is None else scales.clone()  # an output may not be an input


@quantized.register_fake
def _(x, dtype, group, scale, gate, activation):
    groups = 1 if group is None else max(1, -(-x.shape[1] // group))
    made = x.new_empty(x.shape, dtype=dtype)
    if scale is not None:
        return made, torch.empty_like(scale)
    return made, x.new_empty(x.shape[0], groups, dtype=torch.float32)

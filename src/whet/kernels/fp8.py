"""Numbers of one byte: how they are made, and their products."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch.nn import functional

from whet.kernels import fp8_triton, ops
from whet.kernels.checks import (
    FLOATS,
    WAIT_LIMIT,
    Examined,
    as_rows,
    limit_waits,
    shape,
    use_shipped_results,
    wrong,
)
from whet.kernels.fp8_triton import BLOCK
from whet.targets.choice.choice import choice

Scaling = Literal["tensor", "row", "group", "block"]
Activation = Literal["silu", "gelu", "gelu_tanh"]

DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)

_GEMM, _QUANTIZE = "fp8_gemm", "quantize_fp8"


def quantize_fp8(
    x: Any,
    *,
    dtype: Any = torch.float8_e4m3fn,
    scaling: Scaling = "tensor",
    scale: Any = None,
    gate: Any = None,
    activation: Activation = "silu",
) -> tuple[Any, Any]:
    """x as fp8, and float32 scales: x is about `q.float() * scale`.

    `scaling` says what shares a scale: the whole `tensor`, each `row` of the last dimension, each
    `group` of 128 elements in a row, or each `block` of 128×128 elements of a matrix. Scales of
    rows are … × 1, those of groups … × K/128, those of blocks M/128 × K/128, rounded up. With
    `scale`, which is one number in a tensor, nothing is measured and that one is used. With `gate`,
    which has the shape of x, it is act(gate) * x that becomes fp8, without being written elsewhere.

    The largest finite number becomes the largest of the dtype, 448 or 57,344. What is larger,
    infinities as well, becomes that too, with its sign; NaN stays NaN; where all is zero the scale
    is 1.
    """
    _source_examined(x, scale, gate, dtype, scaling, activation)
    rows, gates = as_rows(x), None if gate is None else as_rows(gate)
    given = None if scale is None else scale.to(torch.float32).reshape(())
    fast = x.is_cuda and (given is not None or scaling in ("row", "group"))
    found = quantized if fast else quantized_by_torch
    how = "tensor" if given is not None else scaling
    q, scales = found(rows, dtype, how, given, gates, None if gate is None else activation)
    if given is None and scaling in ("row", "group"):
        scales = scales.view(*x.shape[:-1], scales.shape[-1])
    return q.view(x.shape), scales


def fp8_gemm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    *,
    bias: Any = None,
    activation: Activation | None = None,
    out_dtype: Any = torch.bfloat16,
    fast_accum: bool = True,
) -> Any:
    """act(a @ b, scaled, + bias) of two fp8 tensors, by cuBLAS (`torch._scaled_mm`) or Triton.

    `a` is … × K and `b` is K × N. `q, s = quantize_fp8(weight, …)` of a weight that is N × K makes
    `b=q.t(), scale_b=s.t()`. Scales are those of `quantize_fp8`: one number; or … × 1 for rows of a
    and 1 × N for columns of b; or, of blocks, … × K/128 (groups) or M/128 × K/128 for a and
    K/128 × N/128 for b. Both are of blocks, or neither.

    With `fast_accum` tensor cores keep sums of fp8 products with fewer bits, as they do in
    `torch._scaled_mm`; without, they are carried over to float32 every 128 products. A result that
    `out_dtype` cannot hold is infinite, as in any product.
    """
    on_gpu = getattr(a, "is_cuda", False)
    if not (on_gpu and a.ndim == 2 and _are_numbers(scale_a, scale_b)):
        kind = _product_examined(a, b, scale_a, scale_b, bias, activation, out_dtype)
        scale_a = _as_matrix(scale_a, a.numel() // max(1, a.shape[-1]))
        scale_b = scale_b.to(torch.float32)
        scale_b = scale_b if kind == "blocks" else scale_b.reshape(1, -1)
    call = chosen if on_gpu else by_torch
    made = call(as_rows(a), b, scale_a, scale_b, bias, activation, out_dtype, fast_accum)
    return made if a.ndim == 2 else made.view(*a.shape[:-1], b.shape[1])


def _are_numbers(one: Any, other: Any) -> bool:
    """Which need no other form; the rest a choice checks for the first call of a kind."""
    try:
        return bool(one.ndim == other.ndim == 0 and one.dtype == other.dtype == torch.float32)
    except AttributeError:
        return False


def _as_matrix(scale: Any, rows: int) -> Any:
    scale = scale.to(torch.float32)
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    if scale.ndim == 1:
        return scale.reshape(rows, -1)
    return as_rows(scale)


def _check_source(x: Any, scale: Any, gate: Any, dtype: Any, scaling: str, activation: Any) -> None:
    if not isinstance(x, torch.Tensor) or x.dtype not in FLOATS:
        found = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise wrong(_QUANTIZE, f"x is {found}; give float16, bfloat16 or float32")
    if dtype not in DTYPES:
        raise wrong(_QUANTIZE, f"dtype is {dtype}; give torch.float8_e4m3fn or torch.float8_e5m2")
    if scaling not in get_args(Scaling):
        raise wrong(
            _QUANTIZE, f"scaling is {scaling!r}; give one of {', '.join(get_args(Scaling))}"
        )
    if x.ndim < 1:
        raise wrong(_QUANTIZE, "x is a number; give at least one dimension")
    if scaling == "block" and x.ndim != 2:
        raise wrong(_QUANTIZE, f"x is {shape(x)}; blocks are of a matrix")
    if scale is not None and (not isinstance(scale, torch.Tensor) or scale.numel() != 1):
        raise wrong(_QUANTIZE, "scale must be one number in a tensor; leave it out to measure it")
    if gate is not None and (gate.shape != x.shape or gate.dtype != x.dtype):
        raise wrong(
            _QUANTIZE, f"gate is {shape(gate)} of {gate.dtype}; give one like x, {shape(x)}"
        )
    _check_activation(_QUANTIZE, activation)


_source_examined = Examined(_check_source, 3)


def _check_activation(what: str, activation: Any) -> None:
    if activation is not None and activation not in get_args(Activation):
        names = ", ".join(get_args(Activation))
        raise wrong(what, f"activation is {activation!r}; give None or one of {names}")


def _check_product(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, activation: Any, out_dtype: Any
) -> Literal["plain", "blocks"]:
    for name, one in (("a", a), ("b", b)):
        if not isinstance(one, torch.Tensor) or one.dtype not in DTYPES:
            found = one.dtype if isinstance(one, torch.Tensor) else type(one).__name__
            raise wrong(_GEMM, f"{name} is {found}; give fp8, as quantize_fp8 makes it")
    if a.dtype == b.dtype == torch.float8_e5m2:
        raise wrong(_GEMM, "a and b are float8_e5m2; one of them must be float8_e4m3fn")
    if a.ndim < 1 or b.ndim != 2 or a.shape[-1] != b.shape[0]:
        raise wrong(
            _GEMM, f"a is {shape(a)} and b {shape(b)}; give … × K and K × N with the same K"
        )
    _check_activation(_GEMM, activation)
    if out_dtype not in FLOATS:
        raise wrong(_GEMM, f"out_dtype is {out_dtype}; give float16, bfloat16 or float32")
    if bias is not None and (tuple(bias.shape) != (b.shape[1],) or bias.dtype not in FLOATS):
        raise wrong(_GEMM, f"bias is {shape(bias)} of {bias.dtype}; give {b.shape[1]} numbers")
    rows, depth = math.prod(a.shape[:-1]), _blocks(a.shape[-1])
    first = _kind(scale_a, rows, [(rows, depth), (_blocks(rows), depth)])
    second = _kind(scale_b, b.shape[1], [(depth, _blocks(b.shape[1]))])
    if first is None:
        raise wrong(
            _GEMM,
            f"scale_a is {shape(scale_a)}; give 1, {rows}×1, {rows}×{depth} or "
            f"{_blocks(rows)}×{depth} for a of {shape(a)}",
        )
    if second is None:
        raise wrong(
            _GEMM,
            f"scale_b is {shape(scale_b)}; give 1, 1×{b.shape[1]} or "
            f"{depth}×{_blocks(b.shape[1])} for b of {shape(b)}",
        )
    if first != second and "any" not in (first, second):
        raise wrong(_GEMM, "one scale is of blocks and the other is not; quantize both alike")
    return "blocks" if "blocks" in (first, second) else "plain"


_product_examined = Examined(_check_product, 5)


def _blocks(length: int) -> int:
    """Also nothing has a scale."""
    return max(1, -(-length // BLOCK))


def _kind(scale: Any, length: int, blocks: list[tuple[int, int]]) -> str | None:
    """What the shape of a scale says; `any` where it can be read both ways with one meaning."""
    if not isinstance(scale, torch.Tensor):
        return None
    matrix = (math.prod(scale.shape[:-1]), scale.shape[-1]) if scale.ndim >= 2 else (-1, -1)
    of_blocks, one_block = matrix in blocks, blocks[0][0] == 1 or blocks[0][1] == 1
    plain = scale.numel() == 1 or (scale.numel() == length and 1 in (*scale.shape[-2:], scale.ndim))
    if of_blocks and plain:
        return "any" if scale.numel() == 1 or one_block else "plain"
    return "blocks" if of_blocks else "plain" if plain else None


def reference(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, activation: Any, out_dtype: Any,
    fast_accum: bool = True,
) -> Any:  # fmt: skip
    """In float32: each matrix times its scales, then the product."""
    left = a.float() * _spread(scale_a, a.shape)
    right = b.float() * _spread(scale_b, b.shape)
    return _finished(left @ right, bias, activation).to(out_dtype)


def _finished(y: Any, bias: Any, activation: str | None) -> Any:
    if bias is not None:
        y = y + bias.to(y.dtype)
    if activation == "silu":
        return functional.silu(y)
    if activation is not None:
        return functional.gelu(y, approximate="tanh" if activation == "gelu_tanh" else "none")
    return y


def _spread(scale: Any, wanted: Any) -> Any:
    """A scale for every element; blocks at the edges may be cut."""
    if scale.ndim == 0:
        return scale
    for place, length in enumerate(wanted):
        if scale.shape[place] not in (1, length):
            scale = scale.repeat_interleave(BLOCK, place)
            scale = scale.narrow(place, 0, length)
    return scale


def _in_blocks(a: Any, b: Any, scale_a: Any, scale_b: Any) -> bool:
    """Of w, which is b transposed, as `fp8_triton` has it. A K of one block shows in the rest."""
    if scale_a.ndim == scale_b.ndim == 0:
        return False
    return fp8_triton.in_blocks(a.shape[0], b.shape[1], scale_a, scale_b.t())


def by_torch(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, activation: Any, out_dtype: Any,
    fast_accum: bool,
) -> Any:  # fmt: skip
    """`torch._scaled_mm` where it can do it; else each matrix is scaled first."""
    (m, k), n = a.shape, b.shape[1]
    if not a.is_cuda or _in_blocks(a, b, scale_a, scale_b) or k % 16 or n % 16 or not m * n * k:
        return by_scaling_first(a, b, scale_a, scale_b, bias, activation, out_dtype)
    b = b if b.stride(0) == 1 else b.t().contiguous().t()
    if scale_a.ndim == scale_b.ndim == 0:
        scales = scale_a, scale_b
    elif scale_a.numel() == 1 and scale_b.numel() == 1:
        scales = scale_a.reshape(()), scale_b.reshape(())
    else:
        # Of rows, or of none: cuBLAS wants both.
        scales = scale_a.expand(m, 1).contiguous(), scale_b.expand(1, n).contiguous()
    within = bias is not None and bias.dtype == out_dtype and out_dtype != torch.float32
    y = torch._scaled_mm(
        a if a.stride(1) == 1 else a.contiguous(),
        b,
        scale_a=scales[0],
        scale_b=scales[1],
        bias=bias if within else None,
        out_dtype=out_dtype,
        use_fast_accum=fast_accum,
    )
    return _finished(y, None if within else bias, activation)


def by_scaling_first(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, activation: Any, out_dtype: Any,
    fast_accum: bool = True,
) -> Any:  # fmt: skip
    """Two matrices of `out_dtype` and their product."""
    left = (a.float() * _spread(scale_a, a.shape)).to(out_dtype)
    right = (b.float() * _spread(scale_b, b.shape)).to(out_dtype)
    return _finished(left @ right, bias, activation).to(out_dtype)


def by_triton(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, activation: Any, out_dtype: Any,
    fast_accum: bool,
) -> Any:  # fmt: skip
    w, w_scale = b.t(), scale_b.t()
    w = w if w.stride(1) == 1 else w.contiguous()
    run = ops.fp8_gemm if torch.compiler.is_compiling() else fp8_triton.product
    return run(a, w, scale_a, w_scale, bias, activation, out_dtype, fast_accum)


def quantized_by_torch(
    x: Any, dtype: Any, scaling: str, scale: Any, gate: Any = None, activation: str | None = None
) -> tuple[Any, Any]:
    """Of rows × K."""
    rows, depth = x.shape
    if gate is not None:
        x = _finished(gate.float(), None, activation) * x.float()
    if scale is None:
        size = x.float().abs()
        size = torch.where(torch.isfinite(size), size, 0)
        if scaling in ("tensor", "row"):
            top = size.amax(-1, keepdim=True) if depth else size.new_zeros(rows, 1)
            top = top if scaling == "row" else top.amax() if rows else size.new_zeros(())
        else:
            tall = BLOCK if scaling == "block" else 1
            high, wide = _blocks(rows) if scaling == "block" else rows, _blocks(depth)
            size = functional.pad(size, (0, wide * BLOCK - depth, 0, high * tall - rows))
            top = size.view(high, tall, wide, BLOCK).amax((1, 3))
        scale = torch.where(top > 0, top / torch.finfo(dtype).max, 1.0)
    if not depth:
        return x.to(dtype), scale
    shared = scale if scale.ndim == 0 else _spread(scale, x.shape)
    most = torch.finfo(dtype).max
    return (x.float() / shared).clamp(-most, most).to(dtype), scale


def quantized_by_triton(
    x: Any, dtype: Any, scaling: str, scale: Any, gate: Any = None, activation: str | None = None
) -> tuple[Any, Any]:
    group = BLOCK if scaling == "group" else None
    if torch.compiler.is_compiling():
        q, scales = ops.quantized(x, dtype, group, scale, gate, activation)
        return q, scales if scale is None else scale
    return fp8_triton.quantized(x, dtype, group, scale, gate, activation)


def _gemm_key(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, activation: Any, out_dtype: Any,
    fast_accum: bool,
) -> dict[str, Any]:  # fmt: skip
    if scale_a.ndim == 0:
        _check_product(a, b, scale_a, scale_b, bias, activation, out_dtype)
    return {
        "m": a.shape[0],
        "k": b.shape[0],
        "n": b.shape[1],
        "dtypes": ", ".join(str(one).removeprefix("torch.") for one in (a.dtype, b.dtype)),
        "out": str(out_dtype).removeprefix("torch."),
        "blocks": _in_blocks(a, b, scale_a, scale_b),
        "scales": scale_a.numel() > 1 or scale_b.numel() > 1,
        "bias": bias is not None,
        "activation": activation or "none",
        "fast": fast_accum,
    }


chosen = choice(
    {"cublas": by_torch, "triton": by_triton},
    name=_GEMM,
    key=_gemm_key,
    buckets={"m": "pow2"},
    wait_limit=WAIT_LIMIT,
    reference=reference,
    # Tensor cores add fp8 products with 14 bits or so, each implementation in its own order: of 67
    # million elements one was 6 % of the mean off.
    rtol=0.1,
)


def _quantize_key(
    x: Any, dtype: Any, scaling: str, scale: Any, gate: Any, activation: Any
) -> dict[str, Any]:
    return {
        "rows": x.shape[0],
        "k": x.shape[1],
        "dtypes": ", ".join(str(one).removeprefix("torch.") for one in (x.dtype, dtype)),
        "scaling": "given" if scale is not None else scaling,
        "activation": activation or "none",
    }


quantized = choice(
    {"triton": quantized_by_triton, "torch": quantized_by_torch},
    name=_QUANTIZE,
    key=_quantize_key,
    buckets={"rows": "pow2"},
    wait_limit=WAIT_LIMIT,
)

limit_waits(fp8_triton.fp8_gemm_kernel)
use_shipped_results()

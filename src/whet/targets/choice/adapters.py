"""Implementations from other libraries, where they are installed: none is ever required.

    whet.choice({"torch": rms_norm, **adapters.rms_norm()})

Each function returns a dictionary for `whet.choice`, empty where nothing is installed. All
implementations of one operation take the same arguments and return the same thing:

    matmul()      (a, b): a @ b
    rms_norm()    (x, weight, eps)
    swiglu()      (gate, up): silu(gate) * up
    geglu()       (gate, up): gelu(gate, tanh) * up
    attention()   (q, k, v, causal=False, scale=None): batch × heads × tokens × dim

An installed library that cannot be imported, or that lacks a function, is left out, and said so.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from whet.engine.log import say_once

Implementation = Callable[..., Any]

# The distribution's import names, the newest first.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "cutlass": ("cutlass_cppgen", "cutlass"),
    "flashinfer": ("flashinfer",),
    "liger": ("liger_kernel",),
}


def found() -> tuple[str, ...]:
    """The libraries that are installed, without importing them."""
    return tuple(
        name
        for name, modules in LIBRARIES.items()
        if any(importlib.util.find_spec(module) is not None for module in modules)
    )


def matmul() -> dict[str, Implementation]:
    return _made({"cutlass": _cutlass_matmul})


def rms_norm() -> dict[str, Implementation]:
    return _made({"flashinfer": _flashinfer_rms_norm, "liger": _liger_rms_norm})


def swiglu() -> dict[str, Implementation]:
    return _made({"flashinfer": _flashinfer_swiglu, "liger": _liger_swiglu})


def geglu() -> dict[str, Implementation]:
    return _made({"flashinfer": _flashinfer_geglu, "liger": _liger_geglu})


def attention() -> dict[str, Implementation]:
    return _made({"flashinfer": _flashinfer_attention})


def _made(makers: Mapping[str, Callable[[], Implementation]]) -> dict[str, Implementation]:
    made: dict[str, Implementation] = {}
    installed = found()
    for name, make in makers.items():
        if name not in installed:
            continue
        try:
            made[name] = make()
        except Exception as error:
            say_once(
                f"{name} is installed but is left out of choices: {type(error).__name__}: {error}"
            )
    return made


def _cutlass_matmul() -> Implementation:
    """The first of the two that has the C++ generator; CuTe's DSL alone has no such operation."""
    import torch

    names = [name for name in LIBRARIES["cutlass"] if importlib.util.find_spec(name) is not None]
    modules = [importlib.import_module(name) for name in names]
    cutlass = next((one for one in modules if hasattr(one, "op")), None)
    if cutlass is None:
        raise ImportError(f"{names[0]} has no cutlass.op.Gemm; install nvidia-cutlass")
    row_major, gemm = cutlass.LayoutType.RowMajor, cutlass.op.Gemm
    plans: dict[Any, Any] = {}

    def cutlass_matmul(a: Any, b: Any) -> Any:
        plan = plans.get(a.dtype)
        if plan is None:
            plan = gemm(element=a.dtype, layout=row_major, element_accumulator=torch.float32)
            plans[a.dtype] = plan
        out = torch.empty(*a.shape[:-1], b.shape[-1], dtype=a.dtype, device=a.device)
        plan.run(a.contiguous(), b.contiguous(), out, out, sync=False)
        return out

    return cutlass_matmul


def _flashinfer_rms_norm() -> Implementation:
    from flashinfer.norm import rmsnorm

    def flashinfer_rms_norm(x: Any, weight: Any, eps: float) -> Any:
        return rmsnorm(x.reshape(-1, x.shape[-1]), weight, eps).view(x.shape)

    return flashinfer_rms_norm


def _flashinfer_swiglu() -> Implementation:
    from flashinfer.activation import silu_and_mul

    return _joined(silu_and_mul)


def _flashinfer_geglu() -> Implementation:
    from flashinfer.activation import gelu_tanh_and_mul

    return _joined(gelu_tanh_and_mul)


def _joined(both: Callable[[Any], Any]) -> Implementation:
    """For a function of gate and up side by side in one tensor."""
    import torch

    def flashinfer_gated(gate: Any, up: Any) -> Any:
        return both(torch.cat([gate, up], dim=-1))

    return flashinfer_gated


def _flashinfer_attention() -> Implementation:
    from flashinfer import single_prefill_with_kv_cache

    def flashinfer_attention(
        q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None
    ) -> Any:
        """One sequence at a time: its own layout is tokens × heads × dim."""
        import torch

        rows = [
            single_prefill_with_kv_cache(
                q[one].transpose(0, 1),
                k[one].transpose(0, 1),
                v[one].transpose(0, 1),
                causal=causal,
                sm_scale=scale,
            ).transpose(0, 1)
            for one in range(q.shape[0])
        ]
        return torch.stack(rows)

    return flashinfer_attention


def _liger_rms_norm() -> Implementation:
    from liger_kernel.transformers.functional import liger_rms_norm

    def liger_norm(x: Any, weight: Any, eps: float) -> Any:
        # Its backward would overwrite the upstream gradient.
        return liger_rms_norm(x, weight, eps, in_place=False)

    return liger_norm


def _liger_swiglu() -> Implementation:
    from liger_kernel.transformers.functional import liger_swiglu

    def liger_silu(gate: Any, up: Any) -> Any:
        return liger_swiglu(gate, up)

    return liger_silu


def _liger_geglu() -> Implementation:
    from liger_kernel.transformers.functional import liger_geglu

    def liger_gelu(gate: Any, up: Any) -> Any:
        return liger_geglu(gate, up)

    return liger_gelu

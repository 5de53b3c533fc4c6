"""Fused kernels that consult the tuner: `from whet.kernels import gated_mlp`.

    rmsnorm_rope   RMS norm, of heads or of whole rows, and rotary embedding in one pass
    gated_mlp      SwiGLU and GeGLU: gate and up projection in one kernel, then the down projection
    gemm           a matrix product
    attention      softmax attention
    fp8_gemm       a product of fp8 matrices with scales; quantize_fp8 makes them

Each is a `whet.choice` between torch's own form, a library's and a Triton kernel with a space of
its own. On CPU tensors they compute torch's form. They need torch and triton: extra `kernels`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.kernels.fp8 import fp8_gemm, quantize_fp8
    from whet.kernels.mlp import fused_gated_mlp, gated_mlp
    from whet.kernels.norm_rope import fused_rmsnorm_rope, rmsnorm_rope
    from whet.kernels.product import gemm
    from whet.kernels.sdpa import attention

_HOMES = {
    "attention": "whet.kernels.sdpa",
    "fp8_gemm": "whet.kernels.fp8",
    "fused_gated_mlp": "whet.kernels.mlp",
    "fused_rmsnorm_rope": "whet.kernels.norm_rope",
    "gated_mlp": "whet.kernels.mlp",
    "gemm": "whet.kernels.product",
    "quantize_fp8": "whet.kernels.fp8",
    "rmsnorm_rope": "whet.kernels.norm_rope",
}

__all__ = [
    "attention",
    "fp8_gemm",
    "fused_gated_mlp",
    "fused_rmsnorm_rope",
    "gated_mlp",
    "gemm",
    "quantize_fp8",
    "rmsnorm_rope",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'whet.kernels' has no attribute '{name}'")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        from whet.core.errors import install_extra

        raise ImportError(
            f"whet.kernels needs {error.name}; install it with {install_extra('kernels')}"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

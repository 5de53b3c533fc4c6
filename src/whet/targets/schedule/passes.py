"""The passes from what a script leaves to LLVM."""

from __future__ import annotations

import platform

_VECTOR_OPTIONS = "reassociate-fp-reductions=true" + (
    " enable-arm-neon=true" if platform.machine() in ("aarch64", "arm64") else ""
)


# For tensors that a script leaves; where it leaves none, they change nothing.
BUFFERIZING = (
    "canonicalize",
    "cse",
    "eliminate-empty-tensors",
    "one-shot-bufferize{bufferize-function-boundaries=true}",
)


def lowering(threads: int) -> tuple[str, ...]:
    """In their order; parallel loops become ordinary ones where there is one thread."""
    # Each parallel loop becomes a scope of stack buffers, which goes if there is none in it.
    parallel = ["scf-forall-to-parallel", "convert-scf-to-openmp", "canonicalize"]
    stack = [] if threads > 1 else ["func.func(promote-buffers-to-stack)"]
    return (
        *BUFFERIZING,
        "canonicalize",
        "cse",
        "func.func(convert-linalg-to-loops)",
        "func.func(lower-vector-multi-reduction{lowering-strategy=inner-reduction})",
        "func.func(lower-vector-mask)",
        "buffer-deallocation-pipeline",
        *stack,
        "func.func(convert-vector-to-scf{full-unroll=true})",
        "expand-strided-metadata",
        "lower-affine",
        *(parallel if threads > 1 else ["scf-forall-to-for"]),
        "convert-scf-to-cf",
        f"convert-vector-to-llvm{{{_VECTOR_OPTIONS}}}",
        "finalize-memref-to-llvm",
        "convert-openmp-to-llvm",
        "convert-math-to-llvm",
        "convert-math-to-libm",
        "convert-arith-to-llvm",
        "convert-index-to-llvm",
        "convert-cf-to-llvm",
        "convert-func-to-llvm",
        "convert-ub-to-llvm",
        "reconcile-unrealized-casts",
        "canonicalize",
        "cse",
    )

"""The source of a choice: the names and the code of its implementations and what these call."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from whet.targets import fingerprint
from whet.targets.fingerprint import Parts, Source, digest


def source_of_choice(name: str, implementations: Mapping[str, Any]) -> Source:
    parts = Parts()
    parts.code(name)
    for label, fn in implementations.items():
        parts.code(f"{label}: {_source(fn, set())}")
    return parts.source()


def _source(fn: Any, seen: set[int]) -> str:
    """Beside the function itself, the kernels and choices that it uses by name."""
    if id(fn) in seen:
        return ""
    seen.add(id(fn))
    nested = getattr(fn, "implementations", None)
    if isinstance(nested, Mapping):
        return digest(*(f"{label}: {_source(one, seen)}" for label, one in nested.items()))
    kernel = _kernel_source(fn)
    if kernel:
        return kernel
    forward = getattr(type(fn), "forward", None)
    fn = forward if isinstance(forward, FunctionType) else fn
    inner = getattr(fn, "__wrapped__", fn)
    inner = getattr(inner, "__func__", inner)
    found = [fingerprint.of_callable(inner)]
    if isinstance(inner, FunctionType):
        used = fingerprint._used_values(inner)
        for _, value in sorted(used.items()):
            tunable = isinstance(getattr(value, "implementations", None), Mapping)
            if tunable or _is_kernel(value):
                found.append(_source(value, seen))
    return digest(*found)


def _is_kernel(value: Any) -> bool:
    jit = sys.modules.get("triton.runtime.jit")
    return jit is not None and isinstance(value, jit.KernelInterface)


def _kernel_source(value: Any) -> str:
    if not _is_kernel(value):
        return ""
    from whet.targets.triton.compiler.source import fingerprint as kernel_fingerprint

    try:
        return kernel_fingerprint(value)
    except TypeError:
        return str(getattr(value, "__name__", ""))

"""The source of a choice: the names and the code of its implementations and what these call.

The same in every process and every version of Python, so that results can be shipped.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import partial
from types import FunctionType
from typing import Any

from whet.targets import fingerprint
from whet.targets.fingerprint import Parts, Source, digest
from whet.targets.triton.source import fingerprint as code_fingerprint


def source_of_choice(name: str, implementations: Mapping[str, Any]) -> Source:
    parts = Parts()
    parts.code(name)
    for label, fn in implementations.items():
        parts.code(f"{label}: {_source(fn, set())}")
    return parts.source()


def _source(fn: Any, seen: set[int]) -> str:
    """Beside the function itself and the kernels it uses, the choices that it uses by name."""
    if id(fn) in seen:
        return ""
    seen.add(id(fn))
    nested = _implementations(fn)
    if nested is not None:
        return digest(*(f"{label}: {_source(one, seen)}" for label, one in nested.items()))
    if isinstance(fn, partial):
        values = [repr(one) for one in (*fn.args, *fn.keywords.items()) if _is_plain(one)]
        return digest(_source(fn.func, seen), *values)
    inner = _function(fn)
    if inner is None:
        return fingerprint.of_callable(fn)
    found = [_code(inner)]
    used = fingerprint._used_values(inner) if isinstance(inner, FunctionType) else {}
    for _, value in sorted(used.items()):
        if _implementations(value) is not None:
            found.append(_source(value, seen))
    return digest(*found)


def _function(fn: Any) -> Any:
    """A Python function or a Triton kernel, whatever is around it; None where there is none."""
    jit = sys.modules.get("triton.runtime.jit")
    if jit is not None and isinstance(fn, jit.KernelInterface):
        return fn
    forward = getattr(type(fn), "forward", None)
    inner = inspect.unwrap(forward if isinstance(forward, FunctionType) else fn)
    inner = getattr(inner, "__func__", inner)
    return inner if isinstance(inner, FunctionType) else None


def _code(function: Any) -> str:
    try:
        return code_fingerprint(function)
    except (TypeError, ValueError):  # something in it that has no source
        return fingerprint.of_callable(function)


def _implementations(value: Any) -> Mapping[str, Any] | None:
    found = getattr(type(value), "register", None) and getattr(value, "implementations", None)
    return found if isinstance(found, Mapping) else None


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str | tuple)

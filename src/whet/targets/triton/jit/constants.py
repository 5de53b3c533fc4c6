"""Values that a kernel is compiled for, as JSON and back.

Reading one back imports nothing and calls nothing of what it names: kernels and dtypes are looked
up, and everything else is plain data.
"""

from __future__ import annotations

import math
import sys
from collections import namedtuple
from collections.abc import Callable
from enum import Enum
from typing import Any

_OPAQUE = "opaque"
_LONGEST = 200
_DEEPEST = 16


class NotReproducibleError(TypeError):
    """A value that cannot be made again from what was written down of it."""


def encoded(value: Any, depth: int = 0) -> Any:
    """What has no form of its own becomes `{"opaque": …}`, which tells what it was."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, tuple | list) and depth < _DEEPEST:
        kind = "tuple" if isinstance(value, tuple) else "list"
        items: dict[str, Any] = {kind: [encoded(one, depth + 1) for one in value]}
        if hasattr(value, "_fields"):
            items |= {"name": type(value).__name__, "fields": list(value._fields)}
        return items
    if isinstance(value, Enum):
        return _of_enum(value)
    return _of_triton(value, {kind.__name__ for kind in type(value).__mro__}, depth)


def _of_enum(value: Enum) -> Any:
    """By name: Triton's key has the text of a member, which its number alone does not give."""
    kind = type(value)
    written = {"enum": f"{kind.__module__}:{kind.__qualname__}", "member": str(value.name)}
    return written if _member(written) is value else {_OPAQUE: repr(value)[:_LONGEST]}


def _member(written: dict[str, Any]) -> Any:
    module, _, name = str(written["enum"]).partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    if not (isinstance(found, type) and issubclass(found, Enum)):
        return None
    return found.__members__.get(str(written.get("member")))


def _of_triton(value: Any, kinds: set[str], depth: int) -> Any:
    if "constexpr" in kinds and depth < _DEEPEST:
        return {"constexpr": encoded(value.value, depth + 1)}
    if "JITFunction" in kinds:
        return {"kernel": kernel_name(value)}
    if "dtype" in kinds:
        if type(value).__module__ == "torch":
            return {"torch": str(value).removeprefix("torch.")}
        if type(value).__name__ == "dtype":
            return {"dtype": str(value)}
    return {_OPAQUE: repr(value)[:_LONGEST]}


def decoded(value: Any, kernel: Callable[[str], Any]) -> Any:
    """`kernel` finds a `JITFunction` by name. Raises `NotReproducibleError`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, dict):
        raise NotReproducibleError(f"{value!r} is not a constant of a kernel")
    if "tuple" in value or "list" in value:
        return _sequence(value, kernel)
    if "constexpr" in value:
        import triton.language as tl

        return tl.constexpr(decoded(value["constexpr"], kernel))
    if "kernel" in value:
        return kernel(str(value["kernel"]))
    return _plain(value)


def _sequence(value: dict[str, Any], kernel: Callable[[str], Any]) -> Any:
    items = [decoded(one, kernel) for one in value.get("tuple", value.get("list", ()))]
    if "list" in value:
        return items
    fields = value.get("fields")
    if fields is None:
        return tuple(items)
    try:
        return namedtuple(str(value["name"]), [str(one) for one in fields])(*items)
    except (ValueError, TypeError, KeyError) as error:
        raise NotReproducibleError(f"a tuple with such fields cannot be made: {error}") from None


def _plain(value: dict[str, Any]) -> Any:
    if "float" in value:
        return float(value["float"])
    if "dtype" in value:
        import triton.language as tl

        try:
            return tl.dtype(str(value["dtype"]))
        except (AssertionError, ValueError, RuntimeError) as error:
            raise NotReproducibleError(f"{value['dtype']!r} is not a dtype: {error}") from None
    if "torch" in value:
        found = getattr(sys.modules.get("torch"), str(value["torch"]), None)
        if type(found).__name__ == "dtype":
            return found
    if "enum" in value:
        found = _member(value)
        if found is None:
            raise NotReproducibleError(f"{shown(value)} does not exist in this process")
        return found
    raise NotReproducibleError(f"{value.get(_OPAQUE, value)} has no form that can be written down")


def is_opaque(value: Any) -> bool:
    """Whether it, or something in it, cannot be made again."""
    if not isinstance(value, dict):
        return False
    inside = value.get("tuple", value.get("list"))
    if inside is not None:
        return any(map(is_opaque, inside))
    return _OPAQUE in value or is_opaque(value.get("constexpr"))


def shown(value: Any) -> str:
    """For a person."""
    if not isinstance(value, dict):
        return repr(value) if isinstance(value, str) else str(value)
    inside = value.get("tuple", value.get("list"))
    if inside is not None:
        return f"({', '.join(map(shown, inside))})"
    if "enum" in value:
        return f"{str(value['enum']).rpartition(':')[2]}.{value.get('member')}"
    return shown(next(iter(value.values()))).strip("'")


def kernel_name(jit: Any) -> str:
    """`package.module:function`, as Triton's own registry has it."""
    return f"{jit.fn.__module__}:{jit.fn.__qualname__}"

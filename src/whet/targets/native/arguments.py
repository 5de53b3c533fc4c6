"""What a C function is called with: NumPy arrays and scalars, and their C types."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from whet.core.errors import UsageError

_SCALARS: dict[str, tuple[str, Any]] = {
    "bool": ("_Bool", ctypes.c_bool),
    "int8": ("int8_t", ctypes.c_int8),
    "int16": ("int16_t", ctypes.c_int16),
    "int32": ("int32_t", ctypes.c_int32),
    "int64": ("int64_t", ctypes.c_int64),
    "uint8": ("uint8_t", ctypes.c_uint8),
    "uint16": ("uint16_t", ctypes.c_uint16),
    "uint32": ("uint32_t", ctypes.c_uint32),
    "uint64": ("uint64_t", ctypes.c_uint64),
    "float32": ("float", ctypes.c_float),
    "float64": ("double", ctypes.c_double),
}
_CTYPES: dict[str, Any] = dict(_SCALARS.values()) | {
    "int": ctypes.c_int,
    "double": ctypes.c_double,
    "void *": ctypes.c_void_p,
}


def checked(args: Mapping[str, Any]) -> dict[str, Any]:
    """Refuses what cannot be handed to C, naming the argument."""
    for name, value in args.items():
        if isinstance(value, np.ndarray):
            if not value.flags.c_contiguous:
                raise UsageError(
                    f"argument '{name}' is not contiguous; pass numpy.ascontiguousarray({name})"
                )
            if value.dtype.hasobject:
                raise UsageError(f"argument '{name}' holds Python objects, which C cannot read")
        else:
            c_type(name, value)
    return dict(args)


def c_type(name: str, value: Any) -> str:
    """`int` for a Python int, `double` for a float, `float` for numpy.float32, a pointer for
    an array."""
    if isinstance(value, np.ndarray):
        return "void *"
    if isinstance(value, np.generic) and value.dtype.name in _SCALARS:
        return _SCALARS[value.dtype.name][0]
    if isinstance(value, bool):
        return "_Bool"
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise UsageError(f"argument '{name}' does not fit a C int; pass numpy.int64({value})")
        return "int"
    if isinstance(value, float):
        return "double"
    raise UsageError(
        f"argument '{name}' is a {type(value).__name__}; C kernels take NumPy arrays and scalars"
    )


def as_ctypes(name: str, value: Any) -> Any:
    """A value ctypes can pass again and again. The array must outlive it."""
    kind = _CTYPES[c_type(name, value)]
    if isinstance(value, np.ndarray):
        return kind(value.ctypes.data)
    return kind(value.item() if isinstance(value, np.generic) else value)

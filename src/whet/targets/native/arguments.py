"""What a C function is called with: NumPy arrays and scalars, and their C types."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whet.core.errors import UsageError
from whet.targets.native.signature import CParameter

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
_PYTHONS = {bool: "bool", int: "int32", float: "float64"}
# Not every C has a half of its own, and NumPy's bool is a byte of 0 or 1.
_SAME_BITS = {("float16", "uint16"), ("bool", "uint8")}


def checked(
    args: Mapping[str, Any], function: str, declared: Sequence[CParameter]
) -> dict[str, Any]:
    """Refuses what cannot be handed to C, naming the argument; a number becomes what the C function
    takes. `declared` has its parameters, or nothing where they are not known."""
    passed = dict(args)
    known: Sequence[CParameter | None] = declared or [None] * len(args)
    for name, parameter in zip(args, known, strict=True):
        value = args[name]
        if isinstance(value, np.ndarray):
            _check_array(name, value)
        if parameter is not None and parameter.dtype is not None:
            passed[name] = _as_declared(name, value, function, parameter, parameter.dtype)
        if not isinstance(value, np.ndarray):
            c_type(name, passed[name])
    return passed


def _check_array(name: str, value: Any) -> None:
    if not value.flags.c_contiguous:
        raise UsageError(
            f"argument '{name}' is not contiguous; pass numpy.ascontiguousarray({name})"
        )
    if value.dtype.hasobject:
        raise UsageError(f"argument '{name}' holds Python objects, which C cannot read")
    if not value.dtype.isnative:
        raise UsageError(
            f"argument '{name}' has the bytes of its numbers in another order than this machine; "
            f'pass {name}.astype({name}.dtype.newbyteorder("="))'
        )


def _as_declared(name: str, value: Any, function: str, parameter: CParameter, dtype: str) -> Any:
    """`value` as C reads it: an array of the right type as it is, a number with the right width."""
    takes = f"{function}() in C takes '{parameter.text}'"
    if isinstance(value, np.ndarray):
        if not parameter.pointer:
            raise UsageError(f"argument '{name}' is an array, but {takes}; pass a number")
        if not _reads(dtype, value.dtype):
            raise UsageError(
                f"argument '{name}' is an array of {value.dtype}, but {takes}; pass "
                f"{name}.astype(numpy.{'int8' if dtype == 'char' else dtype})"
            )
        return value
    if parameter.pointer:
        raise UsageError(
            f"argument '{name}' is a {type(value).__name__}, but {takes}; pass a NumPy array"
        )
    if dtype not in _SCALARS or not isinstance(value, bool | int | float | np.generic):
        return value
    return _as_number(name, value, takes, dtype)


def _reads(dtype: str, given: np.dtype[Any]) -> bool:
    """Whether C that takes `dtype` makes sense of an array of `given`: of structs, bytes and dates
    only its author knows."""
    if given.kind not in "biufc":
        return True
    if dtype == "char":
        return given.itemsize == 1
    wanted = np.dtype(dtype)
    parts = given.kind == "c" and wanted.kind == "f" and given.itemsize == 2 * wanted.itemsize
    return given == wanted or parts or (given.name, dtype) in _SAME_BITS


def _as_number(name: str, value: Any, takes: str, dtype: str) -> Any:
    wanted = np.dtype(dtype)
    number = value.item() if isinstance(value, np.generic) else value
    if wanted.kind == "f":
        fits = isinstance(number, int | float)
    else:
        least, most = (0, 1) if wanted.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        fits = isinstance(number, int) and least <= number <= most
    if not fits:
        raise UsageError(f"argument '{name}' is {number!r}, but {takes}, which cannot hold it")
    own = value.dtype.name if isinstance(value, np.generic) else _PYTHONS.get(type(value))
    return value if own == dtype else wanted.type(number)


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

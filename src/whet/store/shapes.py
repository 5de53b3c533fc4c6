"""Whether JSON from elsewhere has the shape we rely on, before anything is made of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_LONGEST_NAME = 1024
_LARGEST = 1e300
# Sizes beyond this are no problem sizes, and would not survive arithmetic on floats.
_LARGEST_INTEGER = 2**128
_DEEPEST = 8


@dataclass(frozen=True)
class Kind:
    """`words` end the sentence "… is not"."""

    words: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Maybe:
    """None will do as well."""

    shape: Any


@dataclass(frozen=True)
class MapOf:
    """An object with any names, each with a value of this shape."""

    shape: Any


def check(value: Any, shape: Any, name: str) -> None:
    """Raises ValueError where `value` has another shape.

    A shape is a `Kind`, a `Maybe`, a `MapOf`, a list of the one shape that all items have, or a
    dict of the names that must be there; others may be.
    """
    if isinstance(shape, Kind):
        if not shape.fits(value):
            raise ValueError(f"{name} is not {shape.words}")
    elif isinstance(shape, Maybe):
        if value is not None:
            check(value, shape.shape, name)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list")
        for item in value:
            check(item, shape[0], f"an item of {name}")
    elif not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    elif isinstance(shape, MapOf):
        for key, inner in value.items():
            check(key, TEXT, f"a name in {name}")
            check(inner, shape.shape, f"{name}.{key[:40]}")
    else:
        for key, inner in shape.items():
            if key not in value:
                raise ValueError(f"{name} has no '{key}'")
            check(value[key], inner, f"{name}.{key}")


def one_of(*choices: str) -> Kind:
    return Kind(f"one of {', '.join(choices)}", lambda value: value in choices)


def _is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_NAME and value.isprintable()


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    """NaN is not below anything."""
    return (_is_integer(value) or isinstance(value, float)) and abs(value) < _LARGEST


def _is_sample(value: Any) -> bool:
    return _is_number(value) or isinstance(value, float)


def _is_plain(value: Any, depth: int = 0) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) < _LARGEST_INTEGER
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return depth < _DEEPEST and all(_is_plain(item, depth + 1) for item in value)
    return _is_text(value)


TEXT = Kind("text", _is_text)
NAME = Kind("a printable name", _is_name)
NUMBER = Kind("a number", _is_number)
SAMPLE = Kind("a number", _is_sample)
INTEGER = Kind("a whole number", _is_integer)
COUNT = Kind("a count", lambda value: _is_integer(value) and value >= 0)
BOOLEAN = Kind("true or false", lambda value: isinstance(value, bool))
PLAIN = Kind("a plain value", _is_plain)

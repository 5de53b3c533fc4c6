"""Whether JSON from elsewhere has the shape we rely on, before anything is made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

_LONGEST_NAME = 1024
_LARGEST = 1e300
# Sizes beyond this are no problem sizes, and would not survive arithmetic on floats.
_LARGEST_INTEGER = 2**128
_DEEPEST = 8


@dataclass(frozen=True)
class Scalar:
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

    A shape is a `Scalar`, a `Maybe`, a `MapOf`, a list of the one shape that all items have, or a
    dict of the names that must be there; others may be.
    """
    if isinstance(shape, Scalar):
        if not shape.fits(value):
            raise ValueError(f"{name} is not {shape.words}")
    elif isinstance(shape, Maybe):
        if value is not None:
            check(value, shape.shape, name)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list")
        _check_items(value, shape[0], name)
    elif not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    elif isinstance(shape, MapOf):
        _check_items(value, TEXT, name)
        _check_items(value.values(), shape.shape, name)
    else:
        for key, inner in shape.items():
            if key not in value:
                raise ValueError(f"{name} has no '{key}'")
            # Told apart here, since it is by far the most frequent and needs no longer name.
            if not isinstance(inner, Scalar):
                check(value[key], inner, f"{name}.{key}")
            elif not inner.fits(value[key]):
                raise ValueError(f"{name}.{key} is not {inner.words}")


def _check_items(values: Iterable[Any], shape: Any, name: str) -> None:
    if not isinstance(shape, Scalar):
        for item in values:
            check(item, shape, f"an item of {name}")
    elif not all(map(shape.fits, values)):
        raise ValueError(f"an item of {name} is not {shape.words}")


def one_of(*choices: str) -> Scalar:
    return Scalar(f"one of {', '.join(choices)}", lambda value: value in choices)


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or value.isascii():
        return isinstance(value, str)
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
    return isinstance(value, float) or _is_number(value)


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


TEXT = Scalar("text", _is_text)
NAME = Scalar("a printable name", _is_name)
NUMBER = Scalar("a number", _is_number)
SAMPLE = Scalar("a number", _is_sample)
INTEGER = Scalar("a whole number", _is_integer)
COUNT = Scalar("a count", lambda value: _is_integer(value) and value >= 0)
BOOLEAN = Scalar("true or false", lambda value: isinstance(value, bool))
PLAIN = Scalar("a plain value", _is_plain)

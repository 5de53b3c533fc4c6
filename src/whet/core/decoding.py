"""JSON values of the types that a noun is made of, whoever wrote them. A ValueError names what is
of another type. Stored nouns are read where somebody waits, so that these do no more than look."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

# Beyond it sums of seconds would not be finite.
_LARGEST = 1e300


def text(data: Mapping[str, Any], name: str) -> str:
    value = data[name]
    if type(value) is not str:
        raise ValueError(f"'{name}' is not a string")
    return value


def number(data: Mapping[str, Any], name: str) -> float:
    """Finite, and not too large to be reckoned with."""
    value = data[name]
    if not _is_number(value):
        raise ValueError(f"'{name}' is not a number")
    return value  # type: ignore[no-any-return]


def whole(data: Mapping[str, Any], name: str) -> int:
    value = data[name]
    if type(value) is not int:
        raise ValueError(f"'{name}' is not a whole number")
    return value


def one_of(data: Mapping[str, Any], name: str, choices: Collection[str]) -> Any:
    value = text(data, name)
    if value not in choices:
        raise ValueError(f"'{name}' is {value[:40]!r}, not one of {', '.join(choices)}")
    return value


def numbers(data: Mapping[str, Any], name: str) -> Mapping[str, float]:
    value = data[name]
    if not isinstance(value, dict) or not all(map(_is_number, value.values())):
        raise ValueError(f"'{name}' is not a list of numbers")
    return value


def texts(data: Mapping[str, Any], name: str) -> Mapping[str, str]:
    value = data[name]
    if not isinstance(value, dict) or not all(type(one) is str for one in value.values()):
        raise ValueError(f"'{name}' is not a list of strings")
    return value


def _is_number(value: Any) -> bool:
    return type(value) in (float, int) and -_LARGEST < value < _LARGEST

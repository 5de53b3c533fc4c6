"""Keys in two parts: numbers, which may be near each other, and the rest, which is equal or not."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

Key = Mapping[str, Any]

_SHAPED = re.compile(r"(?P<dtype>[^\[\]]*)\[(?P<shape>\d{1,18}(?:x\d{1,18})*)\]")


def key_parts(key: Key) -> tuple[dict[str, float], dict[str, Any]]:
    """`{"M": 64, "a": "float16[8x32]"}` has the numbers M=64, a.0=8, a.1=32 and the label
    a="float16[2]"; numbers in a tuple count likewise."""
    numbers: dict[str, float] = {}
    labels: dict[str, Any] = {}
    for name, value in key.items():
        _part(name, value, numbers, labels)
    return numbers, labels


def labels_of(key: Key) -> dict[str, Any]:
    """What two keys must have in common for one to say anything about the other: dtypes, flags,
    ranks, and which numbers there are."""
    numbers, labels = key_parts(key)
    return {**labels, " numbers": sorted(numbers)}


def distance(one: Key, other: Key) -> float:
    """In doublings, over the numbers both have."""
    ours, theirs = key_parts(one)[0], key_parts(other)[0]
    shared = ours.keys() & theirs.keys()
    # A set has another order in every process, and a plain sum of these would depend on it.
    return math.sqrt(math.fsum((log2(ours[name]) - log2(theirs[name])) ** 2 for name in shared))


def key_numbers(key: Key) -> dict[str, float]:
    """The numbers of a key as log2(1 + n): shapes and counts lie evenly there."""
    numbers = {}
    for name, value in key.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[name] = math.copysign(math.log2(1 + abs(value)), value)
    return numbers


def key_distance(one: Key, other: Key) -> float:
    """As `distance`, but for keys that need not be comparable: what is not a number and differs
    counts as three doublings."""
    ours, theirs = key_numbers(one), key_numbers(other)
    shared = ours.keys() & theirs.keys()
    square = sum((ours[name] - theirs[name]) ** 2 for name in shared)
    rest = {*one, *other} - shared
    differing = sum(bool(one.get(name) != other.get(name)) for name in rest)
    return math.sqrt(square) + 3.0 * differing


def log2(number: float) -> float:
    """The logarithm, continued so that any number has one: 0 gives -1, -3 gives -4."""
    return math.log2(number) if number > 0 else number - 1.0


def is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # Beyond this no size is meant, and single precision ends.
    return abs(value) < 1e30


def _part(name: str, value: Any, numbers: dict[str, float], labels: dict[str, Any]) -> None:
    shaped = _SHAPED.fullmatch(value) if isinstance(value, str) else None
    if is_number(value):
        numbers[name] = float(value)
    elif shaped:
        sizes = shaped["shape"].split("x")
        labels[name] = f"{shaped['dtype']}[{len(sizes)}]"
        numbers.update((f"{name}.{at}", float(size)) for at, size in enumerate(sizes))
    elif isinstance(value, list | tuple):
        labels[name] = len(value)
        for at, item in enumerate(value):
            _part(f"{name}.{at}", item, numbers, labels)
    else:
        labels[name] = value

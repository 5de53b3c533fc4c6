"""`Buckets`: many values of a key argument as one, so that a thousand sizes are a dozen workloads.

Buckets.of({"M": "pow2"}, ["M", "N"]).value("M", 37)            64
Buckets.of({"M": [16, 256]}, ["M"]).value("M", 37)              256
Buckets.of({"M": lambda m: -(-m // 100) * 100}, ["M"]).value("M", 37)   100
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Real
from typing import Any

from whet.core.config import Value, freeze_value
from whet.core.errors import SpaceError, UsageError, did_you_mean

# Twice it is still a number.
_LARGEST = 1e300

Bucket = str | Sequence[float] | Callable[[Any], Value]


@dataclass(frozen=True)
class Buckets:
    """A bucket is named by its upper bound. What is no number stands for itself."""

    by_name: Mapping[str, Bucket] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any] | None, keys: Iterable[str]) -> Buckets:
        """Raises `UsageError` for a name that is not in the key, and for what is no bucket."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise UsageError(
                f'buckets is {given!r}; give a dict such as {{"M": "pow2"}}, with names from key'
            )
        names = list(keys)
        for name in given:
            if name not in names:
                raise UsageError(
                    f"buckets names '{name}', which is not in key{did_you_mean(name, names)}"
                )
        return cls({name: _checked(name, bucket) for name, bucket in given.items()})

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def value(self, name: str, value: Any) -> Any:
        """What stands for `value` in the key."""
        bucket = self.by_name.get(name)
        if bucket is None:
            return value
        if callable(bucket):
            return _said(name, bucket, value)
        bounds = self.bounds(name, value)
        return value if bounds is None else bounds[1]

    def bounds(self, name: str, value: Any) -> tuple[float, float] | None:
        """The bucket as low < value <= high; None where it is no range."""
        bucket = self.by_name.get(name)
        if bucket is None or callable(bucket) or not _is_positive(value):
            return None
        if isinstance(bucket, str):
            high = 1 << (math.ceil(value) - 1).bit_length()
            return high // 2 if high > 1 else 0, high
        place = bisect_left(bucket, value)
        if place < len(bucket):
            return bucket[place - 1] if place else 0, bucket[place]
        low = bucket[-1]
        while value > 2 * low:
            low *= 2
        return low, 2 * low


def _checked(name: str, bucket: Any) -> Bucket:
    if callable(bucket):
        return bucket  # type: ignore[no-any-return]
    if isinstance(bucket, str):
        if bucket != "pow2":
            raise UsageError(
                f"unknown bucket '{bucket}' for '{name}'{did_you_mean(bucket, ['pow2'])}"
            )
        return bucket
    if not isinstance(bucket, list | tuple) or not bucket or not all(map(_is_positive, bucket)):
        raise UsageError(
            f"the bucket of '{name}' is {bucket!r}; give \"pow2\", a list of upper bounds such "
            "as [16, 256, 4096], or a function"
        )
    if any(one >= two for one, two in pairwise(bucket)):
        raise UsageError(
            f"the bounds {bucket!r} of bucket '{name}' are not in ascending order; sort them"
        )
    return tuple(bucket)


def _is_positive(value: Any) -> bool:
    is_number: bool = isinstance(value, Real) and not isinstance(value, bool)
    return is_number and bool(0 < value < _LARGEST)


def _said(name: str, bucket: Callable[[Any], Value], value: Any) -> Value:
    try:
        return freeze_value(bucket(value), f"bucket '{name}'")
    except SpaceError as error:
        raise UsageError(f"{error}; return a number or a string") from None
    except Exception as error:
        raise UsageError(
            f"the bucket function of '{name}' failed on {value!r}: {type(error).__name__}: {error}"
        ) from error

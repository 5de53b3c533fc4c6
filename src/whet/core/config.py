"""`Config`: one immutable choice of every parameter."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from whet.core.errors import SpaceError
from whet.core.frozen import FrozenMap

# What a parameter may be: JSON's scalars, and tuples of them (an order, a tile shape).
Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"


# Most values are of these types, and stored ones are read where somebody waits for them.
_FROZEN = frozenset({bool, int, str, type(None)})


def freeze_value(value: Any, where: str = "value") -> Value:
    """Turns lists into tuples and NumPy scalars into Python's; refuses what JSON cannot hold."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpaceError(f"{where} is {value}, which is not a finite number")
        return float(value)
    if isinstance(value, list | tuple):
        return tuple(freeze_value(item, where) for item in value)
    item = getattr(value, "item", None)  # NumPy scalars, without importing NumPy
    if callable(item) and getattr(value, "ndim", None) == 0:
        return freeze_value(item(), where)
    raise SpaceError(
        f"{where} is {value!r} of type {type(value).__name__}; "
        "use None, bool, int, float, str, or a list of these"
    )


def frozen_values(data: Mapping[str, Any]) -> FrozenMap[Any]:
    """A map of plain values as JSON gives it, with its lists turned back into tuples."""
    return FrozenMap(
        {
            name: value if type(value) in _FROZEN else freeze_value(value, f"'{name}'")
            for name, value in data.items()
        }
    )


# Made once: `json.dumps` would make one for every config.
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


class Config(Mapping[str, Value]):
    """`Config(BM=64, BN=32)` or `Config({"BM": 64, "BN": 32})`.

    Two configs are the same when their canonical JSON is: order does not matter, while 1, 1.0
    and True are three different choices. `id` is stable across processes and releases.
    """

    __slots__ = ("_id", "_json", "_values")

    def __init__(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        merged = {**(values or {}), **more}
        self._values: dict[str, Value] = {
            name: value if type(value) in _FROZEN else freeze_value(value, f"parameter '{name}'")
            for name, value in merged.items()
        }
        self._json: str | None = None
        self._id: str | None = None

    @classmethod
    def from_frozen(cls, values: dict[str, Value]) -> Config:
        """Wraps values that `freeze_value` has already seen: enumeration makes many of these."""
        config = cls.__new__(cls)
        config._values = values
        config._json = None
        config._id = None
        return config

    @classmethod
    def from_json(cls, text: str) -> Config:
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise SpaceError(f"a config is a JSON object, not {text[:60]!r}") from None
        if not isinstance(values, dict):
            raise SpaceError(f"a config is a JSON object, not {text[:60]!r}")
        return cls(values)

    @property
    def json(self) -> str:
        """Canonical: sorted names, no spaces."""
        if self._json is None:
            self._json = _canonical(self._values)
        return self._json

    @property
    def id(self) -> str:
        if self._id is None:
            # Text from elsewhere may hold what is no character; it must still have an id.
            data = self.json.encode(errors="surrogatepass")
            self._id = hashlib.blake2b(data, digest_size=8).hexdigest()
        return self._id

    def replace(self, **changes: Any) -> Config:
        return Config({**self._values, **changes})

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.json == other.json

    def __hash__(self) -> int:
        return hash(self.json)

    def __str__(self) -> str:
        return " ".join(f"{name}={_plain(value)}" for name, value in self._values.items())

    def __repr__(self) -> str:
        return f"Config({self._values!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Config, (self._values,))


def _plain(value: Value) -> str:
    if isinstance(value, tuple):
        return ",".join(_plain(item) for item in value)
    return str(value)

"""`Config`: one immutable choice of every parameter."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
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


class Config(FrozenMap[Value]):
    """One choice of parameter values: `Config(BM=64, BN=32)` or `Config({"BM": 64, "BN": 32})`.

    Two configs are equal if their canonical JSON is: order does not matter, but 1, 1.0 and True are
    different values. `json` is that text, with sorted names and no spaces; `id` is stable across
    processes and releases.
    """

    # Enumeration makes millions of configs that nobody asks for either: `__getattr__` fills what
    # is still unset.
    __slots__ = ("id", "json")
    id: str
    json: str

    def __init__(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        given = {**(values or {}), **more}
        for name, value in given.items():
            if type(value) not in _FROZEN:
                given[name] = freeze_value(value, f"parameter '{name}'")
        super().__init__(given)

    @classmethod
    def from_frozen(cls, values: Mapping[str, Value] | Iterable[tuple[str, Value]]) -> Config:
        """Creates a config from values that `freeze_value` has already checked; used by
        enumeration.
        """
        config = cls.__new__(cls)
        dict.update(config, values)
        return config

    @classmethod
    def from_json(cls, text: str) -> Config:
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise SpaceError(f"a config must be a JSON object, not {text[:60]!r}") from None
        if not isinstance(values, dict):
            raise SpaceError(f"a config must be a JSON object, not {text[:60]!r}")
        return cls(values)

    def __getattr__(self, name: str) -> str:
        if name == "json":
            self.json = _canonical(self)
            return self.json
        if name == "id":
            # Text from elsewhere may hold what is no character; it must still have an id.
            data = self.json.encode(errors="surrogatepass")
            self.id = hashlib.blake2b(data, digest_size=8).hexdigest()
            return self.id
        raise AttributeError(f"a Config has no attribute '{name}'", name=name, obj=self)

    def replace(self, **changes: Any) -> Config:
        return Config({**self, **changes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.json == other.json

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.json)

    def __str__(self) -> str:
        return " ".join(f"{name}={_plain(value)}" for name, value in self.items())


def _plain(value: Value) -> str:
    if isinstance(value, tuple):
        return ",".join(_plain(item) for item in value)
    return str(value)

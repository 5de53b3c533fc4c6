"""`Miss`: a key that was met where tuning was not allowed and that had no result of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.core.config import Value, freeze_value
from whet.core.decoding import number, text
from whet.core.workload import Workload


@dataclass(frozen=True)
class Argument:
    """One argument of the call: an array by dtype and shape, a plain value as it is, and of
    anything else no more than its type."""

    name: str
    type: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    value: Value = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "value": self.value,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Argument:
        return cls(
            name=text(data, "name"),
            type=text(data, "type"),
            dtype=text(data, "dtype"),
            shape=_shape(data["shape"]),
            value=freeze_value(data["value"]),
        )


def _shape(sizes: Any) -> tuple[int, ...]:
    if not all(type(size) is int for size in sizes):
        raise ValueError("a shape is not a list of whole numbers")
    return tuple(sizes)


@dataclass(frozen=True)
class Miss:
    """What an offline run needs in order to tune it: `where` is `FILE.py:NAME` as `whet tune`
    takes it, empty where that is not known; `at` is when the key was first met."""

    workload: Workload
    where: str = ""
    arguments: tuple[Argument, ...] = ()
    at: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "workload": self.workload.to_json(),
            "where": self.where,
            "arguments": [argument.to_json() for argument in self.arguments],
            "at": self.at,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Miss:
        return cls(
            workload=Workload.from_json(data["workload"]),
            where=text(data, "where"),
            arguments=tuple(Argument.from_json(one) for one in data["arguments"]),
            at=number(data, "at"),
        )

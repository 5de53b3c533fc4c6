"""`Miss`: a key that was met where tuning was not allowed and that had no result of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.core.config import Value, freeze_value, frozen_values
from whet.core.decoding import number, text, whole
from whet.core.frozen import FrozenMap
from whet.core.workload import Workload


@dataclass(frozen=True)
class Placement:
    """How a dense tensor lies in memory: `stride` and `offset` count elements. Arguments with the
    same `storage` share memory; `aligned` is the power of two that divides its address, 512 at
    most."""

    stride: tuple[int, ...]
    offset: int
    storage: int
    aligned: int

    def to_json(self) -> dict[str, Any]:
        return {
            "stride": list(self.stride),
            "offset": self.offset,
            "storage": self.storage,
            "aligned": self.aligned,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Placement:
        return cls(
            _shape(data["stride"]),
            whole(data, "offset"),
            whole(data, "storage"),
            whole(data, "aligned"),
        )


@dataclass(frozen=True)
class LaunchGrid:
    """The `size` of the grid for configs with these `values`; none are for any config."""

    values: FrozenMap[Any]
    size: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"values": dict(self.values), "size": list(self.size)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaunchGrid:
        return cls(frozen_values(data["values"]), _shape(data["size"]))


@dataclass(frozen=True)
class ValueRange:
    """The least and the greatest of the integers in a tensor that is too large to be kept, and
    whether each is at least the one before (`rising`), as offsets are, or above it (`strict`)."""

    low: int
    high: int
    rising: bool = False
    strict: bool = False

    def to_json(self) -> dict[str, Any]:
        order = "strict" if self.strict else "rising" if self.rising else ""
        return {"low": self.low, "high": self.high, "order": order}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ValueRange:
        low, high, order = whole(data, "low"), whole(data, "high"), text(data, "order")
        if low > high:
            raise ValueError(f"{low} to {high} is not a range")
        return cls(low, high, order in ("rising", "strict"), order == "strict")


@dataclass(frozen=True)
class Argument:
    """One argument of the call: an array by dtype and shape, a plain value as it is, and of
    anything else no more than its type. A tensor that can be made again has a `placement`. A
    small one of integers has its contents as `value`, in order of their indices; a larger one has
    `ranges`: one for all of them, or one for each index of a short last dimension. `compiled` says
    how it went into the binary: its value as a `constant`, as it is (`plain`), or by its type and
    what divides it (empty, as in stores of 0.1)."""

    name: str
    type: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    value: Value = None
    placement: Placement | None = None
    ranges: tuple[ValueRange, ...] = ()
    compiled: str = ""

    def to_json(self) -> dict[str, Any]:
        placed = {} if self.placement is None else {"placement": self.placement.to_json()}
        ranges = {"ranges": [one.to_json() for one in self.ranges]} if self.ranges else {}
        return {
            "name": self.name,
            "type": self.type,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "value": self.value,
            **placed,
            **ranges,
            **({"compiled": self.compiled} if self.compiled else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Argument:
        return cls(
            name=text(data, "name"),
            type=text(data, "type"),
            dtype=text(data, "dtype"),
            shape=_shape(data["shape"]),
            value=freeze_value(data["value"]),
            placement=Placement.from_json(data["placement"]) if "placement" in data else None,
            ranges=tuple(ValueRange.from_json(one) for one in data.get("ranges", ())),
            compiled=text(data, "compiled") if "compiled" in data else "",
        )


def _shape(sizes: Any) -> tuple[int, ...]:
    if not all(type(size) is int for size in sizes):
        raise ValueError("a shape is not a list of whole numbers")
    return tuple(sizes)


@dataclass(frozen=True)
class Miss:
    """What an offline run needs in order to tune it: `where` is `FILE.py:NAME` as `whet tune`
    takes it, empty where that is not known; `module` is the name under which the file can be
    imported, also on another machine; `at` is when the key was first met. `grids` and
    `positional`, the number of arguments that were given by position, are there where the call
    was a launch; stores of 0.1 have none of them."""

    workload: Workload
    where: str = ""
    arguments: tuple[Argument, ...] = ()
    at: float = 0.0
    grids: tuple[LaunchGrid, ...] = ()
    positional: int = 0
    module: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "workload": self.workload.to_json(),
            "where": self.where,
            "arguments": [argument.to_json() for argument in self.arguments],
            "at": self.at,
            **({"grids": [grid.to_json() for grid in self.grids]} if self.grids else {}),
            **({"positional": self.positional} if self.positional else {}),
            **({"module": self.module} if self.module else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Miss:
        return cls(
            workload=Workload.from_json(data["workload"]),
            where=text(data, "where"),
            arguments=tuple(Argument.from_json(one) for one in data["arguments"]),
            at=number(data, "at"),
            grids=tuple(LaunchGrid.from_json(one) for one in data.get("grids", ())),
            positional=whole(data, "positional") if "positional" in data else 0,
            module=text(data, "module") if "module" in data else "",
        )

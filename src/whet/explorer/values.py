"""Values of parameters as codes, in the order in which they were first met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[Any]
Kind = Literal["int", "float", "str", "bool"]

# Beyond this JavaScript's numbers are no longer exact.
_LARGEST_NUMBER = 1 << 53
_NUMBERS = (int, float)


class _NextCodes(dict[Any, int]):
    """Gives whatever is asked for the next free code."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__()
        self._values = values

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self._values)
        self._values.append(value)
        return code


class ValueCodes:
    """1, 1.0 and True are different values, as they are in configs."""

    def __init__(self, values: Sequence[Any] = ()) -> None:
        self.values: list[Any] = []
        self._by_type: dict[type, _NextCodes] = {}
        for value in values:
            self.code(value)

    def copy(self) -> ValueCodes:
        return ValueCodes(self.values)

    def code(self, value: Any) -> int:
        return self._places(type(value))[_hashable(value)]

    def codes(self, column: Sequence[Any]) -> Codes:
        types = set(map(type, column))
        if len(types) == 1 and (only := types.pop()) is not list:
            places = self._places(only)
            found = np.fromiter(map(places.__getitem__, column), np.uint32, len(column))
        else:
            found = np.fromiter(map(self.code, column), np.uint32, len(column))
        return found.astype(smallest(len(self.values)))

    def _places(self, kind: type) -> _NextCodes:
        kind = tuple if kind is list else kind
        if kind not in self._by_type:
            self._by_type[kind] = _NextCodes(self.values)
        return self._by_type[kind]

    @property
    def kind(self) -> Kind:
        types = {type(value) for value in self.values if value is not None}
        if types == {bool}:
            return "bool"
        if types and types <= {int, float} and all(map(_exact, filter(_known, self.values))):
            return "int" if types == {int} else "float"
        return "str"

    def order(self) -> list[int]:
        """The codes in the order in which a person would list them."""
        places = range(len(self.values))
        if self.kind == "str":
            return list(places)
        known = [code for code in places if self.values[code] is not None]
        return [
            *sorted(known, key=lambda code: self.values[code]),
            *(code for code in places if self.values[code] is None),
        ]

    def ranks(self) -> Codes:
        """By code, its place in `order`."""
        order = self.order()
        ranks = np.zeros(len(order), dtype=smallest(len(order)))
        ranks[order] = np.arange(len(order))
        return ranks

    def shown(self) -> list[Any]:
        """The values in their order, as JSON has them."""
        return [_json(self.values[code]) for code in self.order()]


def smallest(count: int) -> type[np.unsignedinteger[Any]]:
    """The smallest kind of code that tells so many values apart."""
    return np.uint8 if count <= 1 << 8 else np.uint16 if count <= 1 << 16 else np.uint32


def value_text(value: Any) -> str:
    """`(1, 2)` is `1,2`, as in a config that is printed."""
    if isinstance(value, list | tuple):
        return ",".join(map(value_text, value))
    return str(value)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _known(value: Any) -> bool:
    return value is not None


def _exact(value: Any) -> bool:
    return bool(abs(value) <= _LARGEST_NUMBER)


def _json(value: Any) -> Any:
    if value is None or type(value) is bool or (type(value) in _NUMBERS and _exact(value)):
        return value
    return value_text(value)

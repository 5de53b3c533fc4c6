"""Configs as numbers: what a space encodes, and what follows from it for a kernel.

`Codebook` turns configs into small whole numbers once, since reading configs is the slow part;
`Features` turns those into columns between 0 and 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from whet.core.config import Config, Value
from whet.core.space import Ordered, Parameter, Space

Codes: TypeAlias = npt.NDArray[np.int32]
Points: TypeAlias = npt.NDArray[np.float32]


class Codebook:
    """The parameters of a space that leave a choice, and configs as positions in their values.

    A config without a parameter has the position one past its values.
    """

    def __init__(self, space: Space) -> None:
        optional = {column[:-1] for column in space.columns if column.endswith("?")}
        self.parameters = tuple(
            one for one in space.parameters if len(one.values) > 1 or one.name in optional
        )
        self._fixed = {
            one.name: one.values[0]
            for one in space.parameters
            if one not in self.parameters and one.values
        }
        self.optional = tuple(one.name in optional for one in self.parameters)
        self._lookups = [_lookup(parameter) for parameter in self.parameters]

    def code(self, config: Mapping[str, Value]) -> tuple[int, ...] | None:
        """None for a config that is not made of this space's values."""
        if any(name not in config or config[name] != only for name, only in self._fixed.items()):
            return None
        try:
            return tuple(self.codes([config])[0].tolist())
        except (KeyError, TypeError, ValueError):
            return None

    def codes(self, configs: Sequence[Mapping[str, Value]]) -> Codes:
        """One row a config; a KeyError or SpaceError where a value is not offered."""
        columns = [
            [lookup(config) for config in configs]
            for lookup in (
                _coder(one, self._lookups[at], self.optional[at])
                for at, one in enumerate(self.parameters)
            )
        ]
        rows = np.array(columns, dtype=np.int32).reshape(len(self.parameters), len(configs))
        return np.ascontiguousarray(rows.T)

    def config(self, codes: Sequence[int]) -> Config:
        values: dict[str, Value] = dict(self._fixed)
        for parameter, code in zip(self.parameters, codes, strict=True):
            if code < len(parameter.values):
                values[parameter.name] = parameter.values[code]
        return Config.from_frozen(values)


def _lookup(parameter: Parameter) -> dict[Any, int] | None:
    """None where values that compare equal differ, as 1 and True do."""
    if all(type(value) in (int, str) for value in parameter.values):
        return {value: at for at, value in enumerate(parameter.values)}
    return None


def _coder(
    parameter: Parameter, lookup: dict[Any, int] | None, optional: bool
) -> Callable[[Mapping[str, Value]], int]:
    name, missing = parameter.name, len(parameter.values)
    if optional:
        return lambda config: parameter.position(config[name]) if name in config else missing
    if lookup is None:
        return lambda config: parameter.position(config[name])
    return lambda config: lookup[config[name]]


@dataclass(frozen=True, eq=False)
class FeatureColumn:
    """The sum, over some parameters, of a number for each of its values."""

    name: str
    parts: tuple[tuple[int, npt.NDArray[np.float64]], ...]

    def of(self, codes: Codes) -> npt.NDArray[np.float64]:
        total = np.zeros(len(codes))
        for at, table in self.parts:
            total += table[codes[:, at]]
        return total


class Features:
    """Columns for models, each scaled to 0…1 over the configs given first.

    `BM=64 BN=48` gives, beside what `Space.encode` gives, how often two divides a number that is
    not always a power of two (`BN twos`), and with `products` the log of numbers that belong
    together by name, multiplied (`BM·BN`, `block_x·tile_x`), and of all numbers.
    """

    def __init__(self, book: Codebook, codes: Codes, *, products: bool = True) -> None:
        plain = _plain(book)
        columns = [*plain, *_twos(book), *(_products(book) if products else ())]
        raw = _stacked(columns, codes)
        low, high = _range(raw)
        kept = np.flatnonzero(high > low)
        self._columns = [columns[at] for at in kept]
        # The first so many columns are the space's own.
        self.plain = int((kept < len(plain)).sum())
        self._low, self._span = low[kept], (high - low)[kept]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self._columns)

    def of(self, codes: Codes) -> Points:
        points = (_stacked(self._columns, codes) - self._low) / self._span
        return points.astype(np.float32)


def _stacked(columns: Sequence[FeatureColumn], codes: Codes) -> npt.NDArray[np.float64]:
    return np.hstack(
        [np.empty((len(codes), 0)), *(column.of(codes)[:, None] for column in columns)]
    )


def _range(
    values: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if not len(values):
        empty = np.zeros(values.shape[1])
        return empty, empty
    return values.min(axis=0), values.max(axis=0)


def _plain(book: Codebook) -> list[FeatureColumn]:
    columns = []
    for at, parameter in enumerate(book.parameters):
        rows = np.array([parameter.encode(value) for value in parameter.values])
        missing = np.zeros((1, rows.shape[1]))
        for k, name in enumerate(parameter.columns):
            columns.append(FeatureColumn(name, ((at, np.vstack([rows, missing])[:, k]),)))
        if book.optional[at]:
            present = np.append(np.ones(len(rows)), 0.0)
            columns.append(FeatureColumn(f"{parameter.name}?", ((at, present),)))
    return columns


def _twos(book: Codebook) -> list[FeatureColumn]:
    """Alignment: 48 and 64 are close, and yet 64 is the rounder one."""
    columns = []
    for at, numbers in _sizes(book).items():
        if not all(number == int(number) for number in numbers):
            continue
        twos = [float((int(number) & -int(number)).bit_length() - 1) for number in numbers]
        if 1 < len(set(twos)) < len(set(numbers)):
            name = f"{book.parameters[at].name} twos"
            columns.append(FeatureColumn(name, ((at, np.array([*twos, 0.0])),)))
    return columns


def _products(book: Codebook) -> list[FeatureColumn]:
    logs = {at: np.array([*np.log2(numbers), 0.0]) for at, numbers in _sizes(book).items()}
    names = {at: book.parameters[at].name for at in logs}
    columns = [
        FeatureColumn(f"{names[one]}·{names[other]}", ((one, logs[one]), (other, logs[other])))
        for one, other in itertools.combinations(logs, 2)
        if related(names[one], names[other])
    ]
    if len(logs) > 1:
        columns.append(FeatureColumn("product", tuple(logs.items())))
    return columns


def _sizes(book: Codebook) -> dict[int, list[float]]:
    """Parameters with three or more numbers, all positive: sizes and counts, not switches."""
    sizes = {}
    for at, parameter in enumerate(book.parameters):
        if not isinstance(parameter, Ordered) or len(parameter.values) < 3:
            continue
        numbers = [
            float(value)
            for value in parameter.values
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        ]
        if len(numbers) == len(parameter.values):
            sizes[at] = numbers
    return sizes


def related(one: str, other: str) -> bool:
    """`block_x` and `block_y` by their beginning, as BM and BN; `tile_x` and `block_x` by their
    end."""
    if len(one) > 1 and one[:-1] == other[:-1]:
        return True
    head, _, tail = one.rpartition("_")
    other_head, _, other_tail = other.rpartition("_")
    return bool(head and other_head) and len(tail) == 1 and tail == other_tail

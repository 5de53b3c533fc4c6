"""Configs at a key as numbers: what a tree may ask about both.

Each column is a sum of logarithms, that is a product: of sizes of the key, of parameters, and of
how many times a parameter goes into a size. Which of those belong together is told by their names
alone; what they mean only a target knows, and it may add columns of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from whet.core.config import Config, Value, freeze_value
from whet.core.errors import SpaceError
from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.learn.keys import Key, is_number, key_parts, log2

Floats: TypeAlias = npt.NDArray[np.float64]
Extra: TypeAlias = Callable[[Config], Mapping[str, float]]
# Positions of a number of the key and of a parameter; with both, how often the one has the other.
Term: TypeAlias = tuple[int, int]

MOST_COLUMNS = 512
_MOST_NAMES = 256
_MOST_VALUES = 100_000
_ABSENT = -1
_MISSING = -8.0
# Where names tell nothing, so many columns of guesses are made of each kind.
_GUESSES = 64


@dataclass(frozen=True)
class Columns:
    """`keys`, `parameters` with their values, and `extras` are named; `sums` are the columns."""

    keys: tuple[str, ...]
    parameters: tuple[tuple[str, tuple[Value, ...]], ...]
    extras: tuple[str, ...]
    sums: tuple[tuple[Term, ...], ...]

    @classmethod
    def of(cls, space: Space, keys: Iterable[Key], extras: Iterable[str] = ()) -> Columns:
        names = tuple(sorted({name for key in keys for name in key_parts(key)[0]}))
        parameters = tuple((one.name, one.values) for one in space.parameters)
        extras = tuple(sorted(extras))
        return cls(names, parameters, extras, tuple(_sums(names, parameters)))

    @property
    def width(self) -> int:
        return len(self.sums) + len(self.extras)

    def parts(self, configs: Sequence[Config], features: Extra | None = None) -> Floats:
        """What holds of configs at any key: numbers as they are, anything else by its position;
        then the extras. NaN in the rows of configs that have a name or a value not known here."""
        columns = [
            [
                known.get(repr(config[name]), math.nan) if name in config else _MISSING
                for config in configs
            ]
            for name, known in self._codes.items()
        ]
        if self.extras:
            given = [{} if features is None else features(config) for config in configs]
            columns += [[_extra(one.get(name)) for one in given] for name in self.extras]
        width = len(self.parameters) + len(self.extras)
        parts = np.array(columns, dtype=np.float64).reshape(width, len(configs)).T
        parts[[not self._codes.keys() >= config.keys() for config in configs]] = math.nan
        return parts

    def rows(self, key: Key, parts: Floats) -> Floats:
        """One row a config, from its `parts`."""
        numbers = key_parts(key)[0]
        sizes = [numbers.get(name, 1.0) for name in self.keys]
        terms = {term: self._term(term, sizes, parts) for term in set(itertools.chain(*self.sums))}
        rows = np.empty((len(parts), self.width))
        for at, column in enumerate(self.sums):
            rows[:, at] = sum(terms[term] for term in column)
        rows[:, len(self.sums) :] = parts[:, len(self.parameters) :]
        # As trees are grown on: rounding must not send a config another way than it was taught.
        return rows.astype(np.float32).astype(np.float64)

    def _term(self, term: Term, sizes: Sequence[float], parts: Floats) -> Floats:
        size, parameter = term
        if parameter == _ABSENT:
            return np.full(len(parts), log2(sizes[size]))
        values = parts[:, parameter]
        if size == _ABSENT:
            positive = values > 0
            logs = np.where(positive, np.log2(np.where(positive, values, 1.0)), values - 1.0)
            return logs if self._numeric[parameter] else values
        times = np.ceil(sizes[size] / np.where(values > 0, values, 1.0))
        return np.log2(np.maximum(times, 1.0))

    @cached_property
    def _numeric(self) -> list[bool]:
        return [_all_numbers(values) for _, values in self.parameters]

    @cached_property
    def _codes(self) -> dict[str, dict[str, float]]:
        """By how a value is written: 1, 1.0 and True are three values."""
        return {
            name: {
                repr(value): float(str(value)) if numeric else float(at)
                for at, value in enumerate(values)
            }
            for (name, values), numeric in zip(self.parameters, self._numeric, strict=True)
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "keys": list(self.keys),
            "parameters": [[name, list(values)] for name, values in self.parameters],
            "extras": list(self.extras),
            "sums": [[list(term) for term in column] for column in self.sums],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Columns:
        """A ValueError says in what way these are no columns."""
        keys, extras = (_names(data.get(name), name) for name in ("keys", "extras"))
        given = _listed(data.get("parameters"), "parameters", _MOST_NAMES)
        if not all(isinstance(one, list) and len(one) == 2 for one in given):
            raise ValueError("its parameters are not all a name with values")
        names = _names([name for name, _ in given], "parameters")
        values = [_values(one) for _, one in given]
        sums = [
            tuple(_checked(term, len(keys), len(names)) for term in _listed(column, "columns", 8))
            for column in _listed(data.get("sums"), "columns", MOST_COLUMNS)
        ]
        return cls(keys, tuple(zip(names, values, strict=True)), extras, tuple(sums))


def _sums(
    keys: Sequence[str], parameters: Sequence[tuple[str, tuple[Value, ...]]]
) -> Iterator[tuple[Term, ...]]:
    choices = [at for at, (_, values) in enumerate(parameters) if len(values) > 1]
    sizes = [at for at in choices if len(parameters[at][1]) > 2 and _sized(parameters[at][1])]
    alone = [((_ABSENT, at),) for at in choices]
    lengths = [((at, _ABSENT),) for at in range(len(keys))]
    products = itertools.combinations([(_ABSENT, at) for at in sizes], 2)
    volumes = itertools.combinations([(at, _ABSENT) for at in range(len(keys))], 2)
    counts = [
        (at, parameter)
        for at, key in enumerate(keys)
        for parameter in choices
        if _sized(parameters[parameter][1]) and belongs(parameters[parameter][0], key)
    ]
    guessed = not counts
    if guessed:
        counts = list(itertools.product(range(len(keys)), sizes))[:_GUESSES]
    several = itertools.chain.from_iterable(
        itertools.combinations(counts, n) for n in ((2,) if guessed else (2, 3))
    )
    # Two sizes cut by one parameter, or one size by two, are rarely meant.
    apart = (
        group
        for group in several
        if all(len(set(side)) == len(group) for side in zip(*group, strict=True))
    )
    yield from alone[:_GUESSES]
    yield from lengths[:_GUESSES]
    yield from ((count,) for count in counts)
    for kind in (apart, products, volumes):
        yield from itertools.islice(kind, _GUESSES)


def belongs(parameter: str, key: str) -> bool:
    """`BLOCK_SIZE_M`, `block_m` and `BM` cut the size `M`."""
    tail = parameter.rpartition("_")[2]
    if tail.lower() == key.lower():
        return True
    return parameter.isupper() and len(parameter) == 2 and parameter[1] == key.upper()


def _all_numbers(values: Sequence[Any]) -> bool:
    return bool(values) and all(map(is_number, values))


def _sized(values: Sequence[Any]) -> bool:
    return _all_numbers(values) and all(value > 0 for value in values)


def _extra(value: Any) -> float:
    return float(value) if is_number(value) else 0.0


def _listed(given: Any, name: str, most: int) -> list[Any]:
    if not isinstance(given, list) or len(given) > most:
        raise ValueError(f"its {name} are not a list of at most {most}")
    return given


def _names(given: Any, name: str) -> tuple[str, ...]:
    listed = _listed(given, name, _MOST_NAMES)
    if not all(isinstance(one, str) for one in listed) or len(set(listed)) < len(listed):
        raise ValueError(f"its {name} are not unique names")
    return tuple(listed)


def _values(given: Any) -> tuple[Value, ...]:
    try:
        return tuple(freeze_value(one) for one in _listed(given, "values", _MOST_VALUES))
    except SpaceError as error:
        raise ValueError(f"one {error}") from None


def _checked(term: Any, keys: int, parameters: int) -> Term:
    if not isinstance(term, list) or len(term) != 2 or not all(type(one) is int for one in term):
        raise ValueError("its columns are not all pairs")
    size, parameter = term
    inside = _ABSENT <= size < keys and _ABSENT <= parameter < parameters
    if not inside or size == parameter == _ABSENT:
        raise ValueError("its columns use unknown names")
    return size, parameter

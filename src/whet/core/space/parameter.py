"""Parameters: the values one may take, which of them are close, and how they look to a model."""

from __future__ import annotations

import itertools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, ClassVar

from whet.core.cached import cached_property
from whet.core.config import Value, freeze_value
from whet.core.errors import SpaceError

MAX_PERMUTED_ITEMS = 8
LOG_SCALE_RATIO = 8


def value_key(value: Value) -> int | str:
    """A dictionary key that tells 1, 1.0 and True apart, as configs do."""
    return value if type(value) is int else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, eq=False)
class Parameter(ABC):
    """A name and the values it may take, in the author's order, each once.

    A subclass adds the geometry: `neighbours` and `encode`. Values that are not among `values`
    are refused with a `SpaceError` by both.
    """

    name: str
    values: tuple[Value, ...]

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _listed(self.name, self.values))

    @abstractmethod
    def neighbours(self, value: Value) -> tuple[Value, ...]:
        """The values one move away, never `value` itself."""

    @abstractmethod
    def encode(self, value: Value) -> tuple[float, ...]:
        """`width` numbers between 0 and 1."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """What each number of `encode` is, for people."""

    @property
    def width(self) -> int:
        return len(self.columns)

    def position(self, value: Value) -> int:
        """Where `value` stands in `values`."""
        found = self._positions.get(value_key(value))
        if found is None:
            raise SpaceError(self.refusal(value))
        return found

    def offers(self, value: Value) -> bool:
        return value_key(value) in self._positions

    def refusal(self, value: Value) -> str:
        """Why `value` will not do, for a message."""
        shown = ", ".join(str(offered) for offered in self.values[:12])
        more = f", … ({len(self.values)} in total)" if len(self.values) > 12 else ""
        return f"{self.name}={value} is not a possible value; valid: {shown}{more}"

    @property
    def identity(self) -> str:
        """Equal for parameters that mean the same; stable across processes and releases."""
        return json.dumps([self.kind, self.name, self.values], ensure_ascii=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parameter) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @cached_property
    def _positions(self) -> dict[int | str, int]:
        return {value_key(value): position for position, value in enumerate(self.values)}


@dataclass(frozen=True, eq=False)
class Ordered(Parameter):
    """Ordered values: with `Ordered("BM", [64, 16, 32])`, 16 and 64 are the neighbours of 32.

    Numbers are sorted by size, and encoded on a log2 scale if they are positive and span a factor
    of eight or more. Other values keep the order in which they are listed and are encoded by rank.
    """

    kind: ClassVar[str] = "ordered"

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        rank = self._ranks[self.position(value)]
        around = (rank - 1, rank + 1)
        return tuple(self.values[self._sorted[at]] for at in around if 0 <= at < len(self.values))

    def encode(self, value: Value) -> tuple[float, ...]:
        return (self._scaled[self.position(value)],)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    @cached_property
    def _numbers(self) -> list[float] | None:
        numbers = [value for value in self.values if _is_number(value)]
        if len(numbers) < len(self.values):
            return None
        try:
            return [float(number) for number in numbers]  # type: ignore[arg-type]
        except OverflowError:
            raise SpaceError(f"parameter '{self.name}' has a number larger than 1e308") from None

    @cached_property
    def _sorted(self) -> list[int]:
        """Positions in `values`, from the least to the greatest."""
        numbers = self._numbers
        positions = range(len(self.values))
        return list(positions) if numbers is None else sorted(positions, key=numbers.__getitem__)

    @cached_property
    def _ranks(self) -> list[int]:
        ranks = [0] * len(self.values)
        for rank, position in enumerate(self._sorted):
            ranks[position] = rank
        return ranks

    @cached_property
    def _scaled(self) -> list[float]:
        numbers = self._numbers or [float(rank) for rank in self._ranks]
        low, high = min(numbers), max(numbers)
        if low > 0 and high / low >= LOG_SCALE_RATIO:
            numbers = [math.log2(number) for number in numbers]
            low, high = min(numbers), max(numbers)
        span = high - low
        return [(number - low) / span if span else 0.0 for number in numbers]


@dataclass(frozen=True, eq=False)
class Categorical(Parameter):
    """Unordered values: `Categorical("layout", ["row", "col"])`.

    Every other value is a neighbour, and values are encoded one-hot.
    """

    kind: ClassVar[str] = "categorical"

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        here = self.position(value)
        return self.values[:here] + self.values[here + 1 :]

    def encode(self, value: Value) -> tuple[float, ...]:
        here = self.position(value)
        return tuple(float(position == here) for position in range(len(self.values)))

    @property
    def columns(self) -> tuple[str, ...]:
        labels = [str(value) for value in self.values]
        if len(set(labels)) < len(labels):
            labels = [repr(value) for value in self.values]
        return tuple(f"{self.name}={label}" for label in labels)


@dataclass(frozen=True, eq=False, init=False)
class Permutation(Parameter):
    """Every order of some items: `Permutation("loops", "mnk")`. The given order comes first.

    A neighbour swaps two positions; the encoding is the position of each item. At most eight items
    are allowed, because all orders are kept in memory (8! = 40,320).
    """

    items: tuple[Value, ...]

    kind: ClassVar[str] = "permutation"

    def __init__(self, name: str, items: Iterable[Any]) -> None:
        listed = _listed(name, tuple(items))
        if len(listed) > MAX_PERMUTED_ITEMS:
            raise SpaceError(
                f"parameter '{name}' permutes {len(listed)} items, more than "
                f"{MAX_PERMUTED_ITEMS}; list the orders that matter in a Categorical instead"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "items", listed)
        object.__setattr__(self, "values", tuple(itertools.permutations(listed)))

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        self.position(value)
        assert isinstance(value, tuple)
        swapped: list[Value] = []
        for left, right in itertools.combinations(range(len(value)), 2):
            order = list(value)
            order[left], order[right] = order[right], order[left]
            swapped.append(tuple(order))
        return tuple(swapped)

    def encode(self, value: Value) -> tuple[float, ...]:
        self.position(value)
        assert isinstance(value, tuple)
        keys = [value_key(item) for item in value]
        last = max(len(keys) - 1, 1)
        return tuple(keys.index(value_key(item)) / last for item in self.items)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.name}[{item}]" for item in self.items)


def infer(name: str, values: Any) -> Parameter:
    """Numbers give `Ordered`; booleans, strings, None, tuples or a mixture give `Categorical`."""
    listed = _listed(name, values)
    numeric = bool(listed) and all(_is_number(value) for value in listed)
    return Ordered(name, listed) if numeric else Categorical(name, listed)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(name: str, values: Any) -> tuple[Value, ...]:
    """The values as a tuple of frozen ones, after every check a list of values must pass."""
    if not isinstance(name, str) or not name:
        raise SpaceError(f"a parameter name must be a string, not {name!r}")
    if isinstance(values, AbstractSet):
        raise SpaceError(f"parameter '{name}' is a set, which has no order; give a list of values")
    if isinstance(values, str | bytes | Mapping) or not _iterable(values):
        raise SpaceError(f"parameter '{name}' is {values!r}; give a list of values: [{values!r}]")
    listed = tuple(freeze_value(value, f"parameter '{name}'") for value in values)
    _refuse_duplicates(name, listed)
    return listed


def _iterable(values: Any) -> bool:
    if isinstance(values, Sequence):
        return True
    try:
        iter(values)
    except TypeError:
        return False
    return True


def _refuse_duplicates(name: str, values: tuple[Value, ...]) -> None:
    seen: set[int | str] = set()
    for value in values:
        key = value_key(value)
        if key in seen:
            raise SpaceError(f"parameter '{name}' lists {value!r} twice")
        seen.add(key)

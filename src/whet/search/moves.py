"""Where the configs of a space lie, which are still free, and how to get from one to another.

Inside the model-free strategies a config is its `Codes`, one small number for each parameter that
has a choice; as a `Point` it has coordinates, and what is close behaves alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from whet.core.config import Config, Value
from whet.core.space import Categorical, Ordered, Parameter, Permutation, Space

Codes: TypeAlias = tuple[int, ...]
Point: TypeAlias = npt.NDArray[np.float64]
Array: TypeAlias = npt.NDArray[np.float64]
Floats: TypeAlias = npt.NDArray[np.float32]

# A space of so many configs is listed, so that the nearest valid one is one look away.
LISTABLE = 150_000

_CHUNK = 64
_REPAIRS = 6


class Axis:
    """A parameter as coordinates: its two most different values are 1 apart.

    Ordered values lie as they are encoded, categories all at the same distance, permutations by
    how far their items are displaced. A config without the parameter has a code of its own.
    """

    def __init__(self, parameter: Parameter, optional: bool) -> None:
        self.parameter = parameter
        rows = np.array([parameter.encode(value) for value in parameter.values])
        if isinstance(parameter, Categorical):
            rows /= 2
        elif isinstance(parameter, Permutation):
            rows /= max(float(np.abs(rows - rows[0]).sum(axis=1).max()), 1.0)
        if optional:
            present = np.full((len(rows), 1), 0.5)
            rows = np.vstack([np.hstack([rows, present]), np.zeros(rows.shape[1] + 1)])
        # Rounded, so that what is equally close is so on every platform.
        self.table: Array = np.round(rows, 6)
        values = range(len(parameter.values))
        # Codes from the least to the greatest; None where the values have no order.
        self._line: list[int] | None = None
        if isinstance(parameter, Ordered):
            self._line = sorted(values, key=lambda code: float(rows[code, 0]))

    def moved(self, code: int, steps: int, rng: np.random.Generator) -> int:
        """Another value: `steps` up or down an order, `steps` swaps of a permutation, any other
        category. Stops at the ends of an order."""
        absent = len(self.parameter.values)
        if code == absent or (absent < len(self.table) and rng.random() < 1 / len(self.table)):
            return int(rng.integers(absent)) if code == absent else absent
        if self._line is not None:
            rank = self._line.index(code)
            down = rank == len(self._line) - 1 or (rank > 0 and rng.random() < 0.5)
            end = rank - steps if down else rank + steps
            return self._line[min(max(end, 0), len(self._line) - 1)]
        value = self.parameter.values[code]
        for _ in range(steps):
            around = self.parameter.neighbours(value)
            value = around[int(rng.integers(len(around)))] if around else value
        return self.parameter.position(value)

    def is_move(self, code: int, other: int) -> bool:
        """False for two permutations that are more than a swap apart."""
        if not isinstance(self.parameter, Permutation):
            return True
        return int((self.table[code] != self.table[other]).sum()) == 2

    def beside(self, code: int, other: int) -> int:
        """Where `other` lies from `code`: -1 or 1 along an order, 0 where there is none."""
        if self._line is None or max(code, other) == len(self._line):
            return 0
        return 1 if self.table[other, 0] > self.table[code, 0] else -1

    def code(self, config: Mapping[str, Value]) -> int | None:
        """None for a value that is not offered."""
        name = self.parameter.name
        if name not in config:
            absent = len(self.parameter.values)
            return absent if absent < len(self.table) else None
        value = config[name]
        return self.parameter.position(value) if self.parameter.offers(value) else None

    def nearest(self, part: Point) -> int:
        return int(np.argmin(np.abs(self.table - part).sum(axis=1)))


class Chart:
    """Configs as codes and as points; parameters without a choice are left out of both."""

    def __init__(self, space: Space) -> None:
        optional = {column[:-1] for column in space.columns if column.endswith("?")}
        axes = [Axis(one, one.name in optional) for one in space.parameters]
        self.axes = [axis for axis in axes if len(axis.table) > 1]
        self._fixed = [axis.parameter for axis in axes if len(axis.table) == 1]
        self._ends = np.cumsum([axis.table.shape[1] for axis in self.axes])

    def codes(self, config: Mapping[str, Value]) -> Codes | None:
        """None for a config that is not made of this space's values."""
        if any(one.name not in config or not one.offers(config[one.name]) for one in self._fixed):
            return None
        found = []
        for axis in self.axes:
            code = axis.code(config)
            if code is None:
                return None
            found.append(code)
        return tuple(found)

    def points(self, codes: Sequence[Codes] | npt.NDArray[np.int32]) -> Array:
        columns = np.asarray(codes, dtype=np.int32).reshape(len(codes), len(self.axes)).T
        blocks = [axis.table[column] for axis, column in zip(self.axes, columns, strict=True)]
        return np.hstack([np.empty((len(codes), 0)), *blocks])

    def nearest(self, point: Point) -> Codes:
        """The closest value of each parameter; together they may break a constraint."""
        parts = np.split(point, self._ends[:-1]) if self.axes else []
        return tuple(axis.nearest(part) for axis, part in zip(self.axes, parts, strict=True))

    def config(self, codes: Codes) -> Config:
        values = {one.name: one.values[0] for one in self._fixed}
        for axis, code in zip(self.axes, codes, strict=True):
            if code < len(axis.parameter.values):
                values[axis.parameter.name] = axis.parameter.values[code]
        return Config.from_frozen(values)


class Ground(Protocol):
    """The valid configs of a space, of which some are taken: asked for, or told of."""

    chart: Chart

    def config(self, codes: Codes) -> Config: ...

    def take(self, codes: Codes) -> None: ...

    def neighbours(self, codes: Codes) -> list[Codes]:
        """The free ones one move away: the same but for one parameter, which takes the closest
        valid value up or down its order, another category, or has two items swapped."""

    def nearest(self, point: Point, base: Codes, rng: np.random.Generator) -> Codes | None:
        """A free one close to `point`, which was reached from `base`; None where none is found."""

    def draw(self, rng: np.random.Generator, n: int) -> list[Codes]:
        """At most `n` different free ones at random; none only when none is left."""


class Listed:
    """All configs are at hand, so that every question is answered by one look at all of them."""

    def __init__(self, space: Space) -> None:
        self.chart = Chart(space)
        self._configs = list(space)
        columns = [[axis.code(one) for one in self._configs] for axis in self.chart.axes]
        shape = (len(self.chart.axes), len(self._configs))
        self._columns = np.array(columns, dtype=np.int32).reshape(shape)
        self._codes: list[Codes] = list(map(tuple, self._columns.T.tolist()))
        self._at = {codes: at for at, codes in enumerate(self._codes)}
        self._points = self.chart.points(self._columns.T).astype(np.float32).T.copy()
        self._free = np.ones(len(self._configs), dtype=bool)

    def config(self, codes: Codes) -> Config:
        return self._configs[self._at[codes]]

    def take(self, codes: Codes) -> None:
        at = self._at.get(codes)
        if at is not None:
            self._free[at] = False

    def neighbours(self, codes: Codes) -> list[Codes]:
        differing = np.zeros(len(self._codes), dtype=np.int16)
        for column, code in zip(self._columns, codes, strict=True):
            differing += column != code
        found = np.flatnonzero(differing == 1)
        away = self._distances(self.chart.points([codes])[0], self._points[:, found])
        steps: dict[tuple[int, int, int], int] = {}
        for at in found[np.argsort(away, kind="stable")]:
            changed = next(k for k, code in enumerate(codes) if code != self._codes[at][k])
            axis, there = self.chart.axes[changed], self._codes[at][changed]
            if axis.is_move(codes[changed], there):
                side = axis.beside(codes[changed], there)
                steps.setdefault((changed, side, 0 if side else there), int(at))
        return [self._codes[at] for at in steps.values() if self._free[at]]

    def nearest(self, point: Point, base: Codes, rng: np.random.Generator) -> Codes | None:
        away = self._distances(point, self._points)
        away[~self._free] = np.inf
        closest = int(np.argmin(away))
        return self._codes[closest] if self._free[closest] else None

    def draw(self, rng: np.random.Generator, n: int) -> list[Codes]:
        free = np.flatnonzero(self._free)
        chosen = rng.choice(free, size=min(n, len(free)), replace=False) if len(free) else free
        return [self._codes[at] for at in chosen]

    def _distances(self, point: Point, columns: Floats) -> Floats:
        away = np.zeros(columns.shape[1], dtype=np.float32)
        for column, coordinate in zip(columns, point.astype(np.float32), strict=True):
            away += np.abs(column - coordinate)
        return away


class Unlisted:
    """Too many configs to list: validity is asked of the space, one config at a time."""

    def __init__(self, space: Space) -> None:
        self.chart = Chart(space)
        self._space = space
        self._taken: set[Codes] = set()
        self._drawn: list[Codes] = []
        self._rest: Iterator[Config] = iter(space)

    def config(self, codes: Codes) -> Config:
        return self.chart.config(codes)

    def take(self, codes: Codes) -> None:
        self._taken.add(codes)

    def neighbours(self, codes: Codes) -> list[Codes]:
        found = self._known(self._space.neighbours(self.config(codes)))
        away = self._distances(self.chart.points([codes])[0], found)
        return [found[at] for at in np.argsort(away, kind="stable")]

    def nearest(self, point: Point, base: Codes, rng: np.random.Generator) -> Codes | None:
        target = self.chart.nearest(point)
        if self._is_valid(target) and target not in self._taken:
            return target
        ends = {self._approached(target, base, rng) for _ in range(_REPAIRS)} - self._taken
        found = sorted(ends) or self.neighbours(base)
        return found[int(np.argmin(self._distances(point, found)))] if found else None

    def draw(self, rng: np.random.Generator, n: int) -> list[Codes]:
        """Draws in chunks; where these bring nothing new for long, goes through the space."""
        for _ in range(_REPAIRS):
            if len(self._drawn) >= n:
                break
            new = self._known(self._space.sample(rng, max(n, _CHUNK)))
            self._drawn = list(dict.fromkeys([*self._drawn, *new]))
        self._drawn = [codes for codes in self._drawn if codes not in self._taken]
        if not self._drawn:
            self._drawn = self._known(next(([one] for one in self._rest if self._known([one])), []))
        chosen, self._drawn = self._drawn[:n], self._drawn[n:]
        return chosen

    def _approached(self, target: Codes, base: Codes, rng: np.random.Generator) -> Codes:
        """From `base` towards `target`, parameter by parameter, as long as that is valid."""
        here = list(base)
        for at in rng.permutation(len(base)):
            before, here[at] = here[at], target[at]
            if here[at] != before and not self._is_valid(tuple(here)):
                here[at] = before
        return tuple(here)

    def _is_valid(self, codes: Codes) -> bool:
        return self.config(codes) in self._space

    def _known(self, configs: Sequence[Config]) -> list[Codes]:
        """The codes of the free ones."""
        found = (self.chart.codes(config) for config in configs)
        return [codes for codes in found if codes is not None and codes not in self._taken]

    def _distances(self, point: Point, among: Sequence[Codes]) -> Array:
        away: Array = np.abs(self.chart.points(among) - point).sum(axis=1)
        return away


def ground_of(space: Space) -> Ground:
    return Listed(space) if space.is_small(LISTABLE) else Unlisted(space)

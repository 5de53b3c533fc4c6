"""What the model-free strategies share: the configs of a space, which of them are free and what is
near them; and how a search starts, what it remembers and what it avoids.

Inside these strategies a config is its `Codes`, one small number for each parameter that has a
choice; as a `Point` it has coordinates, and what is close behaves alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from whet.core.config import Config, Value
from whet.core.lazy import cached_property
from whet.core.space import Categorical, Ordered, Parameter, Permutation, Space
from whet.core.trial import Trial

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


class Encoding:
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


class ConfigPool(Protocol):
    """The valid configs of a space, of which some are taken: asked for, or told of."""

    encoding: Encoding

    def config(self, codes: Codes) -> Config: ...

    def take(self, codes: Codes) -> None: ...

    def neighbours(self, codes: Codes) -> list[Codes]:
        """The free ones one move away: the same but for one parameter, which takes the closest
        valid value up or down its order, another category, or has two items swapped."""

    def nearest(self, point: Point, base: Codes, rng: np.random.Generator) -> Codes | None:
        """A free one close to `point`, which was reached from `base`; None where none is found."""

    def draw(self, rng: np.random.Generator, n: int) -> list[Codes]:
        """At most `n` different free ones at random; none only when none is left."""


class ListedPool:
    """All configs are at hand, so that every question is answered by one look at all of them."""

    def __init__(self, space: Space) -> None:
        self.encoding = Encoding(space)
        self._configs = list(space)
        columns = [[axis.code(one) for one in self._configs] for axis in self.encoding.axes]
        shape = (len(self.encoding.axes), len(self._configs))
        self._columns = np.array(columns, dtype=np.int32).reshape(shape)
        self._codes: list[Codes] = list(map(tuple, self._columns.T.tolist()))
        self._at = {codes: at for at, codes in enumerate(self._codes)}
        self._points = self.encoding.points(self._columns.T).astype(np.float32).T.copy()
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
        away = self._distances(self.encoding.points([codes])[0], self._points[:, found])
        steps: dict[tuple[int, int, int], int] = {}
        for at in found[np.argsort(away, kind="stable")]:
            changed = next(k for k, code in enumerate(codes) if code != self._codes[at][k])
            axis, there = self.encoding.axes[changed], self._codes[at][changed]
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


class SampledPool:
    """Too many configs to list: validity is asked of the space, one config at a time."""

    def __init__(self, space: Space) -> None:
        self.encoding = Encoding(space)
        self._space = space
        self._taken: set[Codes] = set()
        self._drawn: list[Codes] = []
        self._rest: Iterator[Config] = iter(space)

    def config(self, codes: Codes) -> Config:
        return self.encoding.config(codes)

    def take(self, codes: Codes) -> None:
        self._taken.add(codes)

    def neighbours(self, codes: Codes) -> list[Codes]:
        found = self._known(self._space.neighbours(self.config(codes)))
        away = self._distances(self.encoding.points([codes])[0], found)
        return [found[at] for at in np.argsort(away, kind="stable")]

    def nearest(self, point: Point, base: Codes, rng: np.random.Generator) -> Codes | None:
        target = self.encoding.nearest(point)
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
        found = (self.encoding.codes(config) for config in configs)
        return [codes for codes in found if codes is not None and codes not in self._taken]

    def _distances(self, point: Point, among: Sequence[Codes]) -> Array:
        away: Array = np.abs(self.encoding.points(among) - point).sum(axis=1)
        return away


def pool_of(space: Space) -> ConfigPool:
    return ListedPool(space) if space.is_small(LISTABLE) else SampledPool(space)


# Outcomes that are looked back at: the latest, so that asking stays quick.
MEMORY = 256
# How far an outcome is felt, in the units of an `Axis`.
REACH = 0.3
# A failure counts as so much slower than the slowest success, in log time.
FAILURE = 0.5
# What a config is credited for being one unit away from all that was tried.
NOVELTY = 0.3
# Every so often a fresh config, whatever the strategy would rather do.
EXPLORE_EVERY = 5
# Children to choose one from.
BROOD = 3
# Beyond this the last digits depend on the platform, and would decide between equals.
DIGITS = 9
# Random configs to choose a fresh one from.
DRAWN = 48
# And to have rated by what is known beforehand; drawing is slow where a space cannot be listed.
RATED, RATED_UNLISTED = 20_000, 1_000


class Ratings(Protocol):
    """What is known beforehand: log time relative to the best known, NaN where nothing is."""

    def scores(self, configs: Sequence[Config]) -> npt.NDArray[np.float64]: ...


class ModelFree:
    """Asks for `starts`, then for what `_move` proposes, and where that is nothing for a fresh one.

    The starts are the author's first config, what `transfer` rates best, and configs far from one
    another. A subclass gives `_move` and, if it keeps more than the scores, `_learn`.
    """

    guided = True
    starts = 5
    explore_every = EXPLORE_EVERY

    def __init__(self, space: Space, seed: int = 0, *, transfer: Ratings | None = None) -> None:
        self._space = space
        self._rng = np.random.default_rng(seed)
        self._transfer = transfer
        self._asked: dict[Codes, None] = {}
        self._scores: dict[Codes, float] = {}
        self._started = 0
        self._moves = 0

    def ask(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while len(asked) < n:
            codes = self._next()
            if codes is None:
                break
            self._pool.take(codes)
            self._asked[codes] = None
            asked.append(self._pool.config(codes))
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            codes = self._pool.encoding.codes(trial.config)
            if codes is None:
                continue
            ns = trial.median_ns if trial.status.measured else None
            score = math.log(ns) if ns is not None and ns > 0 else math.inf
            self._pool.take(codes)
            self._scores[codes] = score
            self._learn(codes, score)

    def _move(self) -> Codes | None:
        """A free config; None where the strategy knows of nothing better than a fresh one.
        Called once there has been a success."""
        raise NotImplementedError

    def _learn(self, codes: Codes, score: float) -> None:
        """An outcome: the log of the time, infinite for a failure."""

    @cached_property
    def _pool(self) -> ConfigPool:
        return pool_of(self._space)

    @property
    def _best(self) -> Codes | None:
        """The fastest so far; None before the first success."""
        best = min(self._scores, key=self._scores.__getitem__, default=None)
        return best if best is not None and math.isfinite(self._scores[best]) else None

    @property
    def _pending(self) -> list[Codes]:
        """Asked for lately, and not told of. What is never told of is forgotten."""
        return [codes for codes in list(self._asked)[-MEMORY // 4 :] if codes not in self._scores]

    def _next(self) -> Codes | None:
        if self._started < self.starts:
            self._started += 1
            return self._start()
        if self._best is None:
            return self._far()
        self._moves += 1
        move = self._move() if self._moves % self.explore_every else None
        return self._fresh() if move is None else move

    def _start(self) -> Codes | None:
        if self._started == 1 and self._space.first is not None:
            codes = self._pool.encoding.codes(self._space.first)
            if codes is not None and codes not in self._scores:
                return codes
        while self._started % 3 and self._favourites:
            codes = self._favourites.pop(0)
            if codes not in self._asked and codes not in self._scores:
                return codes
        return self._far()

    @cached_property
    def _favourites(self) -> list[Codes]:
        """What `transfer` rates best among the free, best first."""
        if self._transfer is None:
            return []
        count = RATED if self._space.is_small(LISTABLE) else RATED_UNLISTED
        drawn = self._pool.draw(self._rng, count)
        ratings = self._transfer.scores([self._pool.config(codes) for codes in drawn])
        order = np.argsort(ratings, kind="stable")[: self.starts]
        return [drawn[at] for at in order if math.isfinite(ratings[at])]

    def _far(self) -> Codes | None:
        """Of a few random ones, that which is farthest from all known, failures above all."""
        drawn = self._pool.draw(self._rng, DRAWN // 4)
        if not drawn:
            return None
        points = self._pool.encoding.points(drawn)
        return drawn[int(np.argmax(self._novelty(points) - self._risk(points)))]

    def _fresh(self) -> Codes | None:
        """Of some random ones, that which the outcomes around it promise most of."""
        return self._most_promising(self._pool.draw(self._rng, DRAWN), NOVELTY)

    def _most_promising(self, choice: Sequence[Codes], novelty: float = 0.0) -> Codes | None:
        if not choice:
            return None
        points = self._pool.encoding.points(choice)
        outlook = self._outlook(points)
        if novelty:
            outlook -= novelty * self._novelty(points)
        return choice[int(np.argmin(outlook))]

    def _bred(self, breed: Callable[[], Codes | None]) -> Codes | None:
        """The most promising of a few that `breed` gives, which is not where others failed."""
        brood = [child for child in (breed() for _ in range(BROOD)) if child is not None]
        return self._most_promising(brood, NOVELTY / 3)

    def _polishing(self, codes: Codes) -> Codes | None:
        """The most promising free neighbour; None where all are taken."""
        return self._most_promising(self._pool.neighbours(codes))

    def _fittest(self, n: int) -> list[Codes]:
        """The `n` fastest so far, best first."""
        measured = [codes for codes, score in self._scores.items() if math.isfinite(score)]
        return sorted(measured, key=self._scores.__getitem__)[:n]

    def _novelty(self, points: Array) -> Array:
        """How far each point is from the closest that was asked for or told of."""
        known = list(dict.fromkeys([*self._asked, *self._scores]))[-MEMORY:]
        if not known:
            return np.zeros(len(points))
        return _rounded(self._between(points, known).min(axis=1))

    def _outlook(self, points: Array) -> Array:
        """Log time as the outcomes around each point suggest, the closer the more; failures count
        as slower than anything."""
        known = list(self._scores.items())[-MEMORY:]
        scores = np.array([score for _, score in known])
        measured = np.isfinite(scores)
        worst = scores[measured].max() if measured.any() else 0.0
        away = self._between(points, [codes for codes, _ in known])
        felt = np.exp((away.min(axis=1, keepdims=True) - away) / REACH)
        outlook = felt @ np.where(measured, scores, worst + FAILURE) / felt.sum(axis=1)
        return _rounded(outlook)

    def _risk(self, points: Array) -> Array:
        """The chance of failure, as the outcomes around each point suggest; 0 far from all."""
        known = list(self._scores.items())[-MEMORY:]
        failed = np.array([math.isinf(score) for _, score in known])
        if not failed.any():
            return np.zeros(len(points))
        felt = np.exp(-self._between(points, [codes for codes, _ in known]) / REACH)
        return _rounded(felt @ failed / (felt.sum(axis=1) + math.exp(-1 / REACH)))

    def _between(self, points: Array, codes: Sequence[Codes]) -> Array:
        others = self._pool.encoding.points(codes)
        distances: Array = np.abs(points[:, None, :] - others[None, :, :]).sum(axis=2)
        return distances


def _rounded(values: Array) -> Array:
    rounded: Array = np.round(values, DIGITS)
    return rounded

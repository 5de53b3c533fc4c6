"""How long a config takes on a workload nobody has tried, from the same kernel's other workloads.

Time itself depends mostly on the size. What is modelled is the log of the time relative to the
best of its workload, by the config's features and the numbers of the key; so what is learned at one
size says which configs are good at the next, and how sure that is. Of a key that was never tuned,
`model_picks` and `nearest_first` say what it may take over from those that were.
"""

from __future__ import annotations

import itertools
import json
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
from whet.core.status import Status
from whet.core.trial import Trial
from whet.learn.keys import Key, distance, is_number, key_parts, log2
from whet.learn.trees import PlainTrees

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
    """Configs at a key as numbers: what a tree may ask about both.

    Each column is a sum of logarithms, that is a product: of sizes of the key, of parameters, and
    of how many times a parameter goes into a size. Which of those belong together is told by their
    names alone; what they mean only a target knows, and it may add columns of its own. `keys`,
    `parameters` with their values, and `extras` are named; `sums` are the columns.
    """

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


# Below this many outcomes a model would say nothing.
ENOUGH = 24
# Of the form in which a model is kept.
VERSION = 1
# Beyond this much slower than the best, in log time, a config is just slow.
WORST = 1.0
# What matters is which of the fast ones is fastest: of two configs, one slower by a factor e counts
# for this power of e less.
_FAST_COUNTS = 3.0
# From so many outcomes on the time to fit counts.
MANY, _ONE_IN = 5_000, 4
_TREES, _LEAVES, _DEPTH = 32, 640, 18


@dataclass(frozen=True, eq=False)
class CostModel:
    """Predicts the log of the time relative to the best of a workload, up to `WORST`.

    `features` is what the target says of a config; a model that was taught with it wants it again.
    """

    columns: Columns
    trees: PlainTrees
    features: Extra | None = None

    @classmethod
    def fitted(
        cls,
        space: Space,
        trials_by_key: Sequence[tuple[Key, Sequence[Trial]]],
        seed: int = 0,
        features: Extra | None = None,
    ) -> CostModel | None:
        """None where too little was measured to say anything."""
        outcomes = [(key, slowness(trials)) for key, trials in trials_by_key]
        tried = dict.fromkeys(config for _, logs in outcomes for config in logs)
        offered = {one.name: one for one in space.parameters}
        places = {
            config: at
            for at, config in enumerate(
                one
                for one in tried
                if all(name in offered and offered[name].offers(one[name]) for name in one)
            )
        }
        kept = [
            (key, [(places[config], log) for config, log in logs.items() if config in places])
            for key, logs in outcomes
        ]
        if sum(log < WORST for _, logs in kept for _, log in logs) < ENOUGH:
            return None
        extras = {name for config in places for name in (features(config) if features else ())}
        columns = Columns.of(space, [key for key, _ in kept], extras)
        parts = columns.parts(list(places), features)
        rows = np.vstack([columns.rows(key, parts[[at for at, _ in logs]]) for key, logs in kept])
        values = np.array([log for _, logs in kept for _, log in logs])
        weights = np.exp(-_FAST_COUNTS * values)
        if len(values) > MANY:
            # There are many of the slowest and they are alike: one in so many stands for all.
            drawn = np.random.default_rng(seed).integers(_ONE_IN, size=len(values)) == 0
            weights[values >= WORST] *= _ONE_IN
            weights[(values >= WORST) & ~drawn] = 0.0
        taught = weights > 0
        trees = PlainTrees.grown(
            rows[taught],
            values[taught],
            weights[taught],
            seed,
            trees=_TREES,
            leaves=_LEAVES,
            depth=_DEPTH,
        )
        return cls(columns, trees, features)

    def predict(self, key: Key, configs: Sequence[Config]) -> tuple[Floats, Floats]:
        """Expected log time relative to the best, and the standard deviation of that; NaN for
        configs that are not made of the space's values."""
        mean = np.full(len(configs), math.nan)
        deviation = np.full(len(configs), math.nan)
        parts = self.columns.parts(configs, self.features)
        mine = ~np.isnan(parts).any(axis=1)
        if mine.any():
            mean[mine], deviation[mine] = self.trees.predict(self.columns.rows(key, parts[mine]))
        return mean, deviation

    def to_json(self) -> dict[str, Any]:
        return {"v": VERSION, "columns": self.columns.to_json(), "trees": self.trees.to_json()}

    @classmethod
    def from_json(cls, data: Any, features: Extra | None = None) -> CostModel:
        """A ValueError says in what way this is no model; nothing in it is ever executed."""
        if not isinstance(data, dict) or data.get("v") != VERSION:
            raise ValueError(f"it is not a cost model of version {VERSION}")
        given, grown = data.get("columns"), data.get("trees")
        if not isinstance(given, dict) or not isinstance(grown, dict):
            raise ValueError("it has no columns or no trees")
        columns, trees = Columns.from_json(given), PlainTrees.from_json(grown)
        if trees.width != columns.width:
            raise ValueError(f"its trees use {trees.width} columns, but it has {columns.width}")
        return cls(columns, trees, features)


def slowness(trials: Sequence[Trial]) -> dict[Config, float]:
    """The log of each config's time relative to the best, from 0 to `WORST`.

    What failed or was too slow to be measured at all counts as slow as can be, since it must not
    be chosen either; what was measured in another way than the best is left out. Races give the
    losers few samples, and a lucky one of them does not become the best.
    """
    latest = {trial.config: trial for trial in trials}
    measured = [one for one in latest.values() if one.status.measured and one.median_ns]
    finalists = [one for one in measured if one.status is Status.OK] or measured
    if not finalists:
        return {}
    best = min(finalists, key=lambda one: (_host_bound(one), one.median_ns))
    assert best.timing is not None
    logs: dict[Config, float] = {}
    for config, trial in latest.items():
        if trial.timing is None or not trial.status.measured:
            logs[config] = WORST
        elif trial.median_ns and trial.timing.comparable(best.timing):
            logs[config] = min(max(math.log(trial.median_ns / best.timing.median_ns), 0.0), WORST)
    return logs


def _host_bound(trial: Trial) -> bool:
    return trial.timing is not None and trial.timing.host_bound


# A confidence is the chance that a config reaches this share of the best speed at its key.
GOOD = 0.8
# From here on a model's pick is preferred to the best of the nearest key.
SURE = 0.7
# From fewer keys a model cannot tell how the best moves with the size.
ENOUGH_KEYS = 4
# Standard deviation of the log time that each doubling away from the known keys adds.
_DRIFT = 0.1
# Of a GEMM, the best one doubling away was good at 15 of 16 keys; other kernels may be less even.
_NEAREST, _HALVED_IN = 0.9, 3.0


@dataclass(frozen=True)
class Tuned:
    """A key that was tuned, and what was best there."""

    key: Key
    best: Config


@dataclass(frozen=True)
class ModelPick:
    config: Config
    confidence: float


def nearest_first(key: Key, tuned: Sequence[Tuned]) -> list[tuple[float, Tuned]]:
    """With their distances in doublings. Which are comparable at all is for the caller to say."""
    ranked = [(distance(key, one.key), one) for one in tuned]
    return sorted(ranked, key=lambda pair: (pair[0], json.dumps(dict(pair[1].key), sort_keys=True)))


def model_picks(
    model: CostModel, key: Key, configs: Sequence[Config], away: float
) -> Iterator[ModelPick]:
    """The configs by what the model expects of them, the best first; `away` is how far the nearest
    key is that was tuned. Configs it does not know are left out."""
    mean, deviation = model.predict(key, configs)
    for at in np.argsort(mean, kind="stable"):
        if not math.isnan(mean[at]):
            yield ModelPick(configs[at], _chance(float(mean[at]), float(deviation[at]), away))


def nearest_confidence(away: float) -> float:
    return _NEAREST * math.exp2(-away / _HALVED_IN)


def _chance(mean: float, deviation: float, away: float) -> float:
    spread = max(math.hypot(deviation, _DRIFT * away), 1e-6)
    return 0.5 * (1 + math.erf((-math.log(GOOD) - mean) / (spread * math.sqrt(2))))

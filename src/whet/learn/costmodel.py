"""How long a config takes on a workload nobody has tried, from the same kernel's other workloads.

Time itself depends mostly on the size. What is modelled is the log of the time relative to the
best of its workload, by the config's features and the numbers of the key; so what is learned at one
size says which configs are good at the next, and how sure that is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from whet.core.config import Config
from whet.core.space import Space
from whet.core.status import Status
from whet.core.trial import Trial
from whet.learn.columns import Columns, Extra
from whet.learn.plain_trees import PlainTrees
from whet.learn.portfolio import times_of
from whet.learn.prior import SLOWEST, Prior

Floats = npt.NDArray[np.float64]
Key = Mapping[str, Any]

# Below this many outcomes a model would say nothing.
ENOUGH = 24
# Workloads at this distance, in doublings of all their numbers together, count half.
NEAR = 0.7
# A size where so many configs were tried counts half as much as one where all were.
FEW = 20
# Sizes to learn from, the nearest.
MOST_SIZES = 24
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


def key_numbers(key: Key) -> dict[str, float]:
    """The numbers of a key as log2(1 + n): shapes and counts lie evenly there."""
    numbers = {}
    for name, value in key.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[name] = math.copysign(math.log2(1 + abs(value)), value)
    return numbers


def key_distance(one: Key, other: Key) -> float:
    """In doublings; what is not a number and differs counts as three."""
    ours, theirs = key_numbers(one), key_numbers(other)
    shared = ours.keys() & theirs.keys()
    square = sum((ours[name] - theirs[name]) ** 2 for name in shared)
    rest = {*one, *other} - shared
    differing = sum(bool(one.get(name) != other.get(name)) for name in rest)
    return math.sqrt(square) + 3.0 * differing


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


class SizesPrior:
    """What other sizes of the same kernel say about this one, the nearer the more.

    `weights` are the sizes' shares, one a column of `by_source`. Where no size has tried a config
    the model says what it expects.
    """

    def __init__(
        self,
        key: Key,
        sizes: Sequence[tuple[float, Mapping[Config, float]]],
        failing: Mapping[Config, float],
        model: CostModel | None,
    ) -> None:
        self._key = key
        self._sizes = sizes
        self._failing = failing
        self._model = model
        self.weights = np.array([weight for weight, _ in sizes])

    def scores(self, configs: Sequence[Config]) -> Floats:
        columns = self.by_source(configs)
        known = np.where(np.isnan(columns), 0.0, self.weights)
        total = known.sum(axis=1)
        sums = (np.nan_to_num(columns) * known).sum(axis=1)
        scores = np.where(total > 0, sums / np.maximum(total, 1e-300), math.nan)
        missing = np.flatnonzero(total == 0).tolist()
        if missing and self._model is not None:
            scores[missing] = self._model.predict(self._key, [configs[at] for at in missing])[0]
        return scores

    def by_source(self, configs: Sequence[Config]) -> Floats:
        """NaN where a size has not tried a config."""
        columns = [[logs.get(config, math.nan) for config in configs] for _, logs in self._sizes]
        return np.array(columns, dtype=float).reshape(len(self._sizes), len(configs)).T

    def failing(self, configs: Sequence[Config]) -> Floats:
        return np.array([self._failing.get(config, math.nan) for config in configs], dtype=float)


def prior_for(
    workload_key: Key,
    space: Space,
    trials_by_key: Sequence[tuple[Key, Sequence[Trial]]],
    *,
    seed: int = 0,
    features: Callable[[Config], Mapping[str, float]] | None = None,
    guess: bool = True,
) -> Prior | None:
    """What trials of the same kernel at other keys say about this one; None if nothing. A `guess`
    at configs that no key has tried takes a model, and fitting it a second or more."""
    sizes: list[tuple[float, Mapping[Config, float]]] = []
    failed: dict[Config, list[float]] = {}
    order = sorted(trials_by_key, key=lambda one: key_distance(workload_key, one[0]))
    for key, trials in order:
        times = times_of(trials)
        for config in {trial.config: None for trial in trials}:
            failed.setdefault(config, []).append(float(config not in times))
        if times and len(sizes) < MOST_SIZES:
            best = min(times.values())
            logs = {config: min(math.log(ns / best), SLOWEST) for config, ns in times.items()}
            nearness = 0.5 ** (key_distance(workload_key, key) / NEAR)
            sizes.append((nearness * len(logs) / (len(logs) + FEW), logs))
    if not sizes:
        return None
    chances = {
        config: (sum(values) + 0.1) / (len(values) + 0.5) for config, values in failed.items()
    }
    everywhere = {config for _, logs in sizes for config in logs}
    model = None
    if guess and not all(
        config in everywhere for config in itertools.islice(space, len(everywhere) + 1)
    ):
        model = CostModel.fitted(space, trials_by_key, seed, features)
    return SizesPrior(workload_key, sizes, chances, model)

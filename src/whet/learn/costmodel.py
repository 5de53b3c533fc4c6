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
from whet.core.trial import Trial
from whet.learn.features import Codebook, Features, fact_columns
from whet.learn.portfolio import times_of
from whet.learn.prior import SLOWEST, Prior
from whet.learn.trees import Trees

Floats = npt.NDArray[np.float64]
Key = Mapping[str, Any]

# What is known of an artifact that says something about its speed.
FACTS = ("registers", "spills", "shared_bytes", "shared_memory")
# Below this many outcomes a model would say nothing.
ENOUGH = 24
# Workloads at this distance, in doublings of all their numbers together, count half.
NEAR = 0.7
# A size where so many configs were tried counts half as much as one where all were.
FEW = 20
# Sizes to learn from, the nearest.
MOST_SIZES = 24
_TREES = 40


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
    """Predicts the log of the time relative to the best of a workload."""

    _features: Features
    _book: Codebook
    _names: tuple[str, ...]
    _facts: Mapping[Config, Mapping[str, Any]]
    _trees: Trees

    @classmethod
    def fitted(
        cls,
        space: Space,
        trials_by_key: Sequence[tuple[Key, Sequence[Trial]]],
        seed: int = 0,
        features: Callable[[Config], Mapping[str, float]] | None = None,
    ) -> CostModel | None:
        """None where too little was measured to say anything."""
        book = Codebook(space)
        rows: list[tuple[Config, Key, float]] = []
        facts: dict[Config, Mapping[str, Any]] = {}
        for key, trials in trials_by_key:
            times = times_of(trials)
            best = min(times.values(), default=1.0)
            rows += [
                (config, key, min(math.log(ns / best), SLOWEST))
                for config, ns in times.items()
                if book.code(config) is not None
            ]
            facts.update((trial.config, trial.facts) for trial in trials if trial.facts)
        if len(rows) < ENOUGH:
            return None
        codes = book.codes([config for config, _, _ in rows])
        encoded = Features(book, codes, extra=features)
        names = tuple(sorted({name for key, _ in trials_by_key for name in key_numbers(key)}))
        inputs = _inputs(encoded.of(codes), [(c, k) for c, k, _ in rows], names, facts)
        targets = np.array([log for _, _, log in rows])
        trees = Trees.grown(inputs, targets, seed, trees=_TREES, smallest_leaf=2)
        return cls(encoded, book, names, facts, trees)

    def predict(self, key: Key, configs: Sequence[Config]) -> tuple[Floats, Floats]:
        """Expected log time relative to the best, and the standard deviation of that; NaN for
        configs that are not of the space."""
        mean = np.full(len(configs), math.nan)
        deviation = np.full(len(configs), math.nan)
        mine = [at for at, config in enumerate(configs) if self._book.code(config) is not None]
        if mine:
            chosen = [configs[at] for at in mine]
            points = self._features.of(self._book.codes(chosen))
            inputs = _inputs(points, [(one, key) for one in chosen], self._names, self._facts)
            mean[mine], deviation[mine] = self._trees.predict(inputs)
        return mean, deviation


def _inputs(
    points: npt.NDArray[np.float32],
    rows: Sequence[tuple[Config, Key]],
    names: Sequence[str],
    facts: Mapping[Config, Mapping[str, Any]],
) -> Floats:
    keys = [[key_numbers(key).get(name, 0.0) for name in names] for _, key in rows]
    known = fact_columns([facts.get(config, {}) for config, _ in rows], FACTS)
    shapes = np.array(keys, dtype=np.float64).reshape(len(rows), len(names))
    return np.hstack([points.astype(np.float64), shapes, np.nan_to_num(known, nan=-1.0)])


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
) -> Prior | None:
    """What trials of the same kernel at other keys say about this one; None if nothing."""
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
    if not all(config in everywhere for config in itertools.islice(space, len(everywhere) + 1)):
        model = CostModel.fitted(space, trials_by_key, seed, features)
    return SizesPrior(workload_key, sizes, chances, model)

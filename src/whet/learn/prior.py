"""What is known of configs before any is tried: from other workloads, devices or sizes, or by rules
of thumb that hold for most kernels; and the few configs that together serve known workloads best.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from whet.core.config import Config
from whet.core.space import Parameter, Space
from whet.core.trial import Trial
from whet.learn.costmodel import CostModel
from whet.learn.features import Codebook, Codes, Features
from whet.learn.keys import Key, key_distance

Floats = npt.NDArray[np.float64]
Guess: TypeAlias = Callable[[Sequence[Config]], Floats]

# Below this many known configs of a source nothing is guessed about the others.
ENOUGH = 20
_TREES = 60
# Beyond this much slower than the best, in log time, a config is just slow.
SLOWEST = 2.0

# Workloads at this distance, in doublings of all their numbers together, count half.
NEAR = 0.7
# A size where so many configs were tried counts half as much as one where all were.
FEW = 20
# Sizes to learn from, the nearest.
MOST_SIZES = 24

# Sizes that are no power of two leave threads idle and split cache lines: so much slower for each
# doubling of the odd part (96 is 3 × 32). Numbers below a warp's width may be anything.
UNROUND, WARP = 0.1, 32
# So much slower by the square of the doublings away from the usual threads of a block.
FROM_USUAL, USUAL_THREADS = 0.05, 128

_THREADS = re.compile(r"(block|group)_?(size|dim)_?[xyz]|(num_?)?threads(_?[xyz])?", re.IGNORECASE)
_WARPS = re.compile(r"(num_?)?warps", re.IGNORECASE)


class Prior(Protocol):
    """Knowledge about configs before any of them is tried."""

    def scores(self, configs: Sequence[Config]) -> Floats:
        """Expected log time relative to the best known (0 is the best); NaN where nothing is
        known."""

    def failing(self, configs: Sequence[Config]) -> Floats:
        """The chance of failure, 0…1; NaN where nothing is known."""


class TablePrior:
    """What each source measured, and the mean of it by the `weights` of the sources.

    Log times are relative to the best of their source, so sources of different speeds mix. What no
    source has measured is left to `guess`.
    """

    def __init__(
        self,
        sources: Sequence[Mapping[Config, float]],
        failures: Mapping[Config, Sequence[float]],
        weights: Sequence[float],
        guess: Guess | None = None,
    ) -> None:
        self._sources = sources
        # Drawn a little towards success: elsewhere it may work.
        self._failing = {
            config: (sum(values) + 0.1) / (len(values) + 0.5) for config, values in failures.items()
        }
        self._guess = guess
        self.weights = np.array(weights, dtype=float)

    def scores(self, configs: Sequence[Config]) -> Floats:
        columns = self.by_source(configs)
        known = np.where(np.isnan(columns), 0.0, self.weights)
        total = known.sum(axis=1)
        sums = (np.nan_to_num(columns) * known).sum(axis=1)
        scores = np.where(total > 0, sums / np.maximum(total, 1e-300), math.nan)
        missing = np.flatnonzero(total == 0).tolist()
        if missing and self._guess is not None:
            scores[missing] = self._guess([configs[at] for at in missing])
        return scores

    def by_source(self, configs: Sequence[Config]) -> Floats:
        """One column a source; NaN where the source has not measured a config."""
        columns = [[logs.get(config, math.nan) for config in configs] for logs in self._sources]
        return np.array(columns, dtype=float).reshape(len(self._sources), len(configs)).T

    def failing(self, configs: Sequence[Config]) -> Floats:
        return np.array([self._failing.get(config, math.nan) for config in configs], dtype=float)


def times_of(trials: Sequence[Trial]) -> dict[Config, float]:
    """Nanoseconds by config, of the latest trial of each that was measured."""
    latest = {trial.config: trial for trial in trials}
    return {
        config: trial.median_ns
        for config, trial in latest.items()
        if trial.status.measured and trial.median_ns
    }


def _told(
    trials_by_source: Sequence[Sequence[Trial]],
) -> tuple[list[dict[Config, float]], dict[Config, list[float]]]:
    """The log times of each source, relative to its best; and for each config, whether it failed
    where it was tried."""
    sources: list[dict[Config, float]] = []
    failures: dict[Config, list[float]] = {}
    for trials in trials_by_source:
        times = times_of(trials)
        for config in dict.fromkeys(trial.config for trial in trials):
            failures.setdefault(config, []).append(float(config not in times))
        best = min(times.values(), default=1.0)
        sources.append({one: min(math.log(ns / best), SLOWEST) for one, ns in times.items()})
    return sources, failures


def prior_from(trials_by_workload: Sequence[Sequence[Trial]], space: Space) -> Prior | None:
    """What these trials of the same parameters say about `space`; None where they say nothing.

    Exact where a source has tried the config, by a model of the sources where none has. A config
    that failed everywhere has no score.
    """
    told, failures = _told(trials_by_workload)
    sources = [logs for logs in told if logs]
    if not sources:
        return None
    guess = _guess(sources, failures, space)
    return TablePrior(sources, failures, [1.0] * len(sources), guess)


def _guess(
    sources: Sequence[Mapping[Config, float]], failures: Mapping[Config, object], space: Space
) -> Guess | None:
    """A forest over the features, made when it is first needed; None where too little is known."""
    book = Codebook(space)
    means: dict[Config, float] = {}
    for config in dict.fromkeys(config for source in sources for config in source):
        values = [source[config] for source in sources if config in source]
        means[config] = sum(values) / len(values)
    known = [config for config in means if book.code(config) is not None]
    if len(known) < ENOUGH:
        return None
    fitted: list[Guess] = []

    def fit() -> Guess:
        from sklearn.ensemble import ExtraTreesRegressor

        codes = book.codes(known)
        features = Features(book, codes)
        forest = ExtraTreesRegressor(_TREES, min_samples_leaf=2, random_state=0, n_jobs=1)
        forest.fit(features.of(codes), [means[config] for config in known])
        return lambda configs: forest.predict(features.of(book.codes(configs)))

    def guess(configs: Sequence[Config]) -> Floats:
        scores = np.full(len(configs), math.nan)
        mine = [
            at
            for at, config in enumerate(configs)
            if config not in failures and book.code(config) is not None
        ]
        if mine:
            fitted[:] = fitted or [fit()]
            scores[mine] = fitted[0]([configs[at] for at in mine])
        return scores

    return guess


def prior_for(
    workload_key: Key,
    space: Space,
    trials_by_key: Sequence[tuple[Key, Sequence[Trial]]],
    *,
    seed: int = 0,
    guess: bool = True,
) -> Prior | None:
    """What trials of the same kernel at other keys say about this one, the nearer the more; None if
    nothing. A `guess` at configs that no key has tried takes a model, and fitting it a second or
    more."""
    order = sorted(trials_by_key, key=lambda one: key_distance(workload_key, one[0]))
    told, failures = _told([trials for _, trials in order])
    sizes = [(key, logs) for (key, _), logs in zip(order, told, strict=True) if logs][:MOST_SIZES]
    if not sizes:
        return None
    weights = [
        0.5 ** (key_distance(workload_key, key) / NEAR) * len(logs) / (len(logs) + FEW)
        for key, logs in sizes
    ]
    everywhere = {config for _, logs in sizes for config in logs}
    model = None
    if guess and not all(
        config in everywhere for config in itertools.islice(space, len(everywhere) + 1)
    ):
        model = CostModel.fitted(space, trials_by_key, seed)
    expected = None if model is None else lambda configs: model.predict(workload_key, configs)[0]
    return TablePrior([logs for _, logs in sizes], failures, weights, expected)


class Rules:
    """What holds for most GPU kernels, before anything is known of this one.

    A weak opinion on the configs of a space, as log time: it says where to begin and gives way to
    what is measured. `silent` where the rules say nothing of the space's parameters.
    """

    def __init__(self, book: Codebook) -> None:
        logs = {at: _logs(one) for at, one in enumerate(book.parameters)}
        self._logs = {at: table for at, table in logs.items() if table is not None}
        self._odd = {at: odd for at in self._logs if (odd := _odd_parts(book.parameters[at])).any()}
        names = {at: book.parameters[at].name for at in self._logs}
        warps = [at for at, name in names.items() if _WARPS.fullmatch(name)]
        blocks = [at for at, name in names.items() if _THREADS.fullmatch(name)]
        # Where warps are counted, a block's sizes are those of its data.
        self._threads = warps or blocks
        self._usual = np.log2(USUAL_THREADS / (WARP if warps else 1))

    @property
    def silent(self) -> bool:
        return not self._threads and not self._odd

    def of(self, codes: Codes) -> Floats:
        """Log time above what is usual for a good config; 0 for one without fault."""
        slower = np.zeros(len(codes))
        for at, odd in self._odd.items():
            slower += UNROUND * odd[codes[:, at]]
        if self._threads:
            threads = sum(self._logs[at][codes[:, at]] for at in self._threads)
            slower += FROM_USUAL * (threads - self._usual) ** 2
        return slower


def _logs(parameter: Parameter) -> Floats | None:
    """log2 of each value, 0 for none; None where not all are positive numbers."""
    values = parameter.values
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return None
    numbers = np.array(values, dtype=np.float64)
    return np.append(np.log2(numbers), 0.0) if numbers.min() > 0 else None


def _odd_parts(parameter: Parameter) -> Floats:
    """log2 of the odd part of each value; zeros where none is a warp wide or some are no whole
    numbers."""
    numbers = [float(str(value)) for value in parameter.values]
    if max(numbers) < WARP or any(number != int(number) for number in numbers):
        return np.zeros(len(numbers) + 1)
    whole = [int(number) for number in numbers]
    return np.array([*(np.log2(number // (number & -number)) for number in whole), 0.0])


@dataclass(frozen=True)
class Portfolio:
    """`configs` in the order they were added; `coverage` is, after each, the geometric mean over
    the workloads of how fast the best of them is against the best known."""

    configs: tuple[Config, ...]
    coverage: tuple[float, ...]


def portfolio_of(
    times_by_workload: Sequence[Mapping[Config, float]], k: int, *, least: float = 1e-2
) -> Portfolio:
    """Greedy: each further config is the one that raises the coverage most, of equals the first.

    Where a config was not measured or failed it counts as reaching `least` of the best. Fewer than
    k where one more would not help.
    """
    known = [times for times in times_by_workload if times]
    configs = list(dict.fromkeys(config for times in known for config in times))
    logs = np.full((len(known), len(configs)), math.log(least))
    at = {config: column for column, config in enumerate(configs)}
    for row, times in enumerate(known):
        best = min(times.values())
        for config, ns in times.items():
            logs[row, at[config]] = max(math.log(best / ns), math.log(least))
    chosen: list[int] = []
    coverage: list[float] = []
    reached = np.full(len(known), math.log(least))
    while known and len(chosen) < k:
        means = np.maximum(reached[:, None], logs).mean(axis=0)
        column = int(np.argmax(means))
        if chosen and means[column] <= reached.mean() + 1e-12:
            break
        chosen.append(column)
        reached = np.maximum(reached, logs[:, column])
        coverage.append(float(np.exp(reached.mean())))
    return Portfolio(tuple(configs[column] for column in chosen), tuple(coverage))

"""What is known of a space beforehand, from other workloads or devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from whet.core.config import Config
from whet.core.space import Space
from whet.core.trial import Trial
from whet.learn.features import Codebook, Features

Floats = npt.NDArray[np.float64]

# Below this many known configs of a source nothing is guessed about the others.
ENOUGH = 20
_TREES = 60
# Beyond this much slower than the best, in log time, a config is just slow.
SLOWEST = 2.0


class Prior(Protocol):
    """Knowledge about configs before any of them is tried."""

    def scores(self, configs: Sequence[Config]) -> Floats:
        """Expected log time relative to the best known (0 is the best); NaN where nothing is
        known."""

    def failing(self, configs: Sequence[Config]) -> Floats:
        """The chance of failure, 0…1; NaN where nothing is known."""


class TablePrior:
    """What each source measured, and the mean of it.

    Log times are relative to the best of their source, so sources of different speeds mix. A
    config that failed everywhere has no score. What no source has tried is left to `guess`.
    """

    def __init__(
        self,
        sources: Sequence[Mapping[Config, float]],
        failures: Mapping[Config, float],
        guess: Callable[[Sequence[Config]], Floats] | None = None,
    ) -> None:
        self._sources = sources
        self._failures = failures
        self._guess = guess

    def scores(self, configs: Sequence[Config]) -> Floats:
        return mean_known(self.by_source(configs))

    def by_source(self, configs: Sequence[Config]) -> Floats:
        """One column a source; NaN where the source does not know, unless no source does and
        there is a guess."""
        columns = [[logs.get(config, math.nan) for config in configs] for logs in self._sources]
        known = np.array(columns, dtype=float).reshape(len(self._sources), len(configs)).T
        missing = [at for at, config in enumerate(configs) if config not in self._failures]
        if missing and self._guess is not None:
            known[missing] = self._guess([configs[at] for at in missing])[:, None]
        return known

    def failing(self, configs: Sequence[Config]) -> Floats:
        return np.array([self._failures.get(config, math.nan) for config in configs], dtype=float)


def mean_known(columns: Floats) -> Floats:
    """The mean of each row over what is not NaN; NaN where nothing is."""
    known = ~np.isnan(columns)
    counts = known.sum(axis=1)
    sums = np.where(known, columns, 0.0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)


def prior_from(
    trials_by_workload: Sequence[Sequence[Trial]],
    space: Space,
    features: Callable[[Config], Mapping[str, float]] | None = None,
) -> Prior | None:
    """What these trials of the same parameters say about `space`; None where they say nothing.

    Exact where a source has tried the config, by a model of the sources where none has.
    """
    sources: list[dict[Config, float]] = []
    failures: dict[Config, list[float]] = {}
    for trials in trials_by_workload:
        latest = {trial.config: trial for trial in trials}
        times = {
            config: math.log(trial.median_ns)
            for config, trial in latest.items()
            if trial.status.measured and trial.median_ns
        }
        for config in latest:
            failures.setdefault(config, []).append(float(config not in times))
        if times:
            best = min(times.values())
            sources.append({config: min(log - best, SLOWEST) for config, log in times.items()})
    if not sources:
        return None
    # Drawn a little towards success: elsewhere it may work.
    chances = {
        config: (sum(values) + 0.1) / (len(values) + 0.5) for config, values in failures.items()
    }
    return TablePrior(sources, chances, _guess(sources, space, features))


def _guess(
    sources: Sequence[Mapping[Config, float]],
    space: Space,
    extra: Callable[[Config], Mapping[str, float]] | None,
) -> Callable[[Sequence[Config]], Floats] | None:
    """A forest over the features, made when it is first needed; None where too little is known."""
    book = Codebook(space)
    means: dict[Config, float] = {}
    for config in dict.fromkeys(config for source in sources for config in source):
        values = [source[config] for source in sources if config in source]
        means[config] = sum(values) / len(values)
    known = [config for config in means if book.code(config) is not None]
    if len(known) < ENOUGH:
        return None
    fitted: list[tuple[Any, Features]] = []

    def guess(configs: Sequence[Config]) -> Floats:
        if not fitted:
            from sklearn.ensemble import ExtraTreesRegressor

            codes = book.codes(known)
            features = Features(book, codes, extra=extra)
            forest = ExtraTreesRegressor(_TREES, min_samples_leaf=2, random_state=0, n_jobs=1)
            forest.fit(features.of(codes), [means[config] for config in known])
            fitted.append((forest, features))
        forest, features = fitted[0]
        scores = np.full(len(configs), math.nan)
        mine = [at for at, config in enumerate(configs) if book.code(config) is not None]
        if mine:
            codes = book.codes([configs[at] for at in mine])
            scores[mine] = forest.predict(features.of(codes))
        return scores

    return guess

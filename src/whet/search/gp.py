"""Gaussian processes over the log of the time, and expected improvement times chance of success."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.learn.features import Features, Points
from whet.learn.gaussian import (
    Hyperparameters,
    Posterior,
    expected_improvement,
    fit_hyperparameters,
)
from whet.learn.prior import Prior
from whet.search.modelled import Floats, Modelled, Singles

# Hyperparameters are fit anew when there are so many times more outcomes.
REFIT = 1.4
# They are fit to at most so many outcomes, and the process keeps at most so many.
FITTED, KEPT = 80, 400
# The steps of a fit, the first times and after that: by judgement, as most rest before these end.
FIRST_STEPS, STEPS = 25, 12
# Below this expected gain, in log time, every so often a neighbour of the best is looked at.
LITTLE, POLISH_EVERY = 0.001, 4
# Log times far beyond this above the best are all alike.
EASE = 0.8
# The quantile of the measured times that a failure counts as.
SLOW = 0.75
# The standard deviation of how large a prior's differences turn out, beside what it says.
PRIOR_DEVIATION = 0.5


def eased(slower: Floats) -> Floats:
    """Log times above the best, with differences among the slow made small: how slow a slow config
    is says little about the fast ones."""
    return EASE * (1 - np.exp(-slower / EASE))


class Surrogate:
    """One process over one set of features, with or without opinions as its mean.

    `weights` are how much each opinion counts beforehand.
    """

    def __init__(self, weights: Floats | None = None) -> None:
        self._weights = weights
        self._opinions: Floats | None = None
        self._posterior: Posterior | None = None
        self._values: dict[int, float] = {}
        self._measured: dict[int, None] = {}
        self._failed: dict[int, None] = {}
        self._fitted_at = 0

    def observe(self, row: int, log: float) -> None:
        self._values[row] = log
        self._measured[row] = None
        self._failed.pop(row, None)

    def fail(self, row: int) -> None:
        """A failure counts as one of the slower outcomes: it is not worth looking around it."""
        self._measured.pop(row, None)
        self._values.pop(row, None)
        self._failed[row] = None

    def predict(
        self, points: Points, pending: dict[int, None], opinions: Floats | None = None
    ) -> tuple[Singles, Singles]:
        """Mean and standard deviation at every point. Each column of `opinions` is of log times.

        What is pending counts as if it came out at its mean.
        """
        self._opinions = opinions
        posterior = self._current(points)
        held = set(posterior.rows)
        for row in (*self._measured, *self._failed, *pending):
            if row not in held and len(posterior.rows) < KEPT:
                if row not in self._values and row not in self._failed:
                    mean, _ = self._predict(posterior)
                    self._values[row] = float(mean[row])
                posterior.add(row)
        return self._predict(posterior)

    def _predict(self, posterior: Posterior) -> tuple[Singles, Singles]:
        values = self._outcomes(posterior.rows)
        rated = self._rated(posterior, values)
        if rated is None:
            return posterior.predict(values)
        mean, deviation = posterior.predict(values - rated[posterior.rows])
        return mean + rated.astype(np.float32), deviation

    def _outcomes(self, rows: Sequence[int]) -> Floats:
        """Log times, eased; those of pending rows are so already."""
        told = np.array([self._values[row] for row in self._measured])
        best, slow = float(told.min()), float(np.quantile(told, SLOW))
        known = np.array([slow if row in self._failed else self._values[row] for row in rows])
        settled = np.array([row in self._failed or row in self._measured for row in rows])
        return np.where(settled, best + eased(np.maximum(known - best, 0.0)), known)

    def _rated(self, posterior: Posterior, values: Floats) -> Floats | None:
        """What the opinions say of every point, each weighed by how far the outcomes bear it out:
        as much as was given to begin with."""
        if self._opinions is None:
            return None
        count = self._opinions.shape[1]
        there = self._opinions[posterior.rows]
        columns = posterior.whitened(np.column_stack([there, values, np.ones(len(values))]))
        flat = columns[:, -1] / max(float(np.linalg.norm(columns[:, -1])), 1e-12)
        columns = columns[:, :-1] - np.outer(flat, flat @ columns[:, :-1])
        told, known = columns[:, -1], columns[:, :-1]
        given = np.full(count, 1 / count) if self._weights is None else self._weights
        error = float(np.mean((told - known @ given) ** 2)) + 1e-6
        trust = np.eye(count) * (error / (PRIOR_DEVIATION / count**0.5) ** 2)
        weights = given + np.linalg.solve(known.T @ known + trust, known.T @ (told - known @ given))
        rated: Floats = self._opinions @ np.clip(weights, 0.0, 1.5)
        return rated

    def _current(self, points: Points) -> Posterior:
        posterior = self._posterior
        if posterior is None:
            posterior = self._posterior = Posterior(points)
        if len(posterior) < len(points):
            posterior.extend(points[len(posterior) :])
        if len(self._measured) >= max(2, self._fitted_at * REFIT):
            self._fitted_at = len(self._measured)
            self._refit(posterior, points)
        return posterior

    def _refit(self, posterior: Posterior, points: Points) -> None:
        rows = self._kept(FITTED)
        values = self._outcomes(rows)
        if self._opinions is not None:
            posterior.reset(posterior.hyperparameters, rows)
            rated = self._rated(posterior, values)
            values = values if rated is None else values - rated[rows]
        spread = float(values.std())
        hyperparameters: Hyperparameters = posterior.hyperparameters
        if spread > 1e-9:
            steps = FIRST_STEPS if self._fitted_at < 12 else STEPS
            hyperparameters = fit_hyperparameters(
                points[rows], (values - values.mean()) / spread, hyperparameters, steps
            )
        self._values = {row: self._values[row] for row in self._measured}
        posterior.reset(hyperparameters, self._kept(KEPT))

    def _kept(self, n: int) -> list[int]:
        """All outcomes; of more than n, the best half and the latest."""
        rows = [*self._measured, *self._failed]
        if len(rows) <= n:
            return rows
        best = sorted(self._measured, key=self._values.__getitem__)[: n // 2]
        chosen = set(best)
        latest = [row for row in reversed(rows) if row not in chosen][: n - len(best)]
        return [*best, *reversed(latest)]


class GaussianProcess(Modelled):
    name = "gp"

    def __init__(self, space: Space, seed: int = 0, *, transfer: Prior | None = None) -> None:
        super().__init__(space, seed, transfer=transfer)
        self._turn = 0

    @cached_property
    def _surrogates(self) -> list[Surrogate]:
        return [Surrogate(None if self._sources is None else self._source_weights)]

    def _views(self) -> list[Points]:
        """The features of each surrogate."""
        return [self._points]

    def _opinions(self) -> list[Floats | None]:
        """The prior means of each."""
        return [self._prior_opinions]

    def _choosers(self) -> list[int]:
        """The surrogates that choose next, together."""
        return [0]

    @property
    def _prior_opinions(self) -> Floats | None:
        """What the sources say; of configs that joined the pool later, what is usual."""
        if self._sources is None:
            return None
        missing = len(self._candidates) - len(self._sources)
        if missing:
            usual = np.median(self._sources, axis=0)
            self._sources = np.vstack([self._sources, np.repeat(usual[None, :], missing, axis=0)])
        return eased(self._sources)

    def _learned(self, row: int) -> None:
        for surrogate in self._surrogates:
            if row in self._outcomes.logs:
                surrogate.observe(row, self._outcomes.logs[row])
            else:
                surrogate.fail(row)

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        self._turn += 1
        self._surround()
        gain = self._succeeding().astype(np.float32)
        gain *= self._expected_gain()
        row = self._preferred(gain, self._most(gain, np.flatnonzero(self._candidates.free)))
        if gain[row] < LITTLE and self._turn % POLISH_EVERY == 0:
            return self._polished(gain, row)
        return row

    def _preferred(self, gain: Singles, row: int) -> int:
        """The row that promises most, or another that somebody else speaks for."""
        return row

    def _expected_gain(self, doubt: float = 1.0) -> Floats:
        """Of every row, the mean over those that choose; `doubt` widens what they are unsure of."""
        views, opinions = self._views(), self._opinions()
        gains = []
        for which in self._choosers():
            surrogate = self._surrogates[which]
            mean, deviation = surrogate.predict(views[which], self._pending, opinions[which])
            doubtful = deviation * np.float32(doubt)
            gains.append(expected_improvement(mean, doubtful, self._outcomes.best))
        return np.asarray(np.mean(gains, axis=0))

    def _surround(self) -> None:
        """In a space too large to list, the neighbours of the best few join the pool."""
        if not self._candidates.whole:
            for row in self._outcomes.fastest(3):
                if row not in self._surrounded:
                    self._surrounded.add(row)
                    self._candidates.neighbours(row)

    @cached_property
    def _surrounded(self) -> set[int]:
        return set()

    def _polished(self, gain: Singles, otherwise: int) -> int:
        """The neighbour of the best that promises most."""
        best = self._outcomes.best_row
        around = None if best is None else self._candidates.neighbours(best)
        if around is None or not len(around):
            return otherwise
        return self._most(gain, around[around < len(gain)])


# So many of the first configs are the prior's choice; from a later one on, every second of so many
# is far from the others.
TRUSTED = 8
AFRESH_FROM, AFRESH = 12, 4
# How much the rules of thumb count where there is a prior.
RULES_BESIDE_PRIOR = 0.3


class TwoViews(GaussianProcess):
    """Three that choose together: one sees products of parameters, one does not, so that where one
    is blind the other is not, and one knows the prior.

    The first two know the rules of thumb beforehand, the third those and the prior; each weighs
    what it was told by how far outcomes bear it out. With a prior the first configs are the
    prior's alone. Soon after them come some far from one another, as a search without a prior
    starts: where the prior is wrong, its search is not to end around its favourites.
    """

    favoured = 5

    def __init__(self, space: Space, seed: int = 0, *, transfer: Prior | None = None) -> None:
        super().__init__(space, seed, transfer=transfer)
        self._afresh: list[int] | None = None

    @cached_property
    def _surrogates(self) -> list[Surrogate]:
        surrogates = [Surrogate(), Surrogate()]
        if self._sources is None:
            return surrogates
        rules = [] if self._rules.silent else [RULES_BESIDE_PRIOR]
        return [*surrogates, Surrogate(np.append(self._source_weights, rules))]

    @cached_property
    def _plain(self) -> Features:
        return Features(self._candidates.book, self._candidates.codes, products=False)

    def _views(self) -> list[Points]:
        return [self._points, self._grown("plain", self._plain), self._points]

    def _opinions(self) -> list[Floats | None]:
        rules = None if self._rated_by_rule is None else self._rated_by_rule[:, None]
        prior = self._prior_opinions
        if prior is not None and rules is not None:
            prior = np.hstack([prior, rules])
        return [rules, rules, prior]

    def _started(self, free: npt.NDArray[np.intp]) -> list[int]:
        if self._sources is None:
            return super()._started(free)
        # Few sources agree by chance: their second best is no better than what a surrogate finds.
        return self._favourites(min(self.favoured, 1 + self._sources.shape[1]))

    def _choosers(self) -> list[int]:
        if self._sources is None:
            return [0, 1]
        return [2] if self._tried < TRUSTED else [0, 1, 2]

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        if self._sources is not None and self._tried >= AFRESH_FROM and self._tried % 2:
            if self._afresh is None:
                self._afresh = self._scattered(free, AFRESH)
            while self._afresh:
                row = self._afresh.pop(0)
                if self._candidates.free[row]:
                    return row
        return super()._choose(free)

    @property
    def _tried(self) -> int:
        return len(self._outcomes) + len(self._pending)

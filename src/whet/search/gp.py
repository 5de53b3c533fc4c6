"""Gaussian processes over the log of the time, and expected improvement times chance of success."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from whet.core.space import Space
from whet.learn.acquisition import expected_improvement
from whet.learn.features import Points
from whet.learn.gaussian import Field, Scales, fitted
from whet.learn.prior import Prior
from whet.search.modelled import Floats, Modelled, Singles

# Scales are fitted anew when there are so many times more outcomes.
REFIT = 1.4
# Scales are fitted to at most so many outcomes, and the process keeps at most so many.
FITTED, KEPT = 80, 400
# How long the search for better scales goes on, the first times and after that.
FIRST_STEPS, STEPS = 25, 12
# Below this expected gain, in log time, every so often a neighbour of the best is looked at.
LITTLE, POLISH_EVERY = 0.001, 4
# Log times far beyond this above the best are all alike.
EASE = 0.8
# The quantile of the measured times that a failure counts as.
SLOW = 0.75
# How sure one may be beforehand that a prior's differences are as large as it says.
DOUBT = 0.5


def eased(slower: Floats) -> Floats:
    """Log times above the best, with differences among the slow made small: how slow a slow config
    is says little about the fast ones."""
    return EASE * (1 - np.exp(-slower / EASE))


class Belief:
    """One process over one set of features, with or without opinions as its mean.

    `weights` are how much each opinion counts beforehand.
    """

    def __init__(self, weights: Floats | None = None) -> None:
        self._weights = weights
        self._opinions: Floats | None = None
        self._field: Field | None = None
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

    def posterior(
        self, points: Points, pending: dict[int, None], opinions: Floats | None = None
    ) -> tuple[Singles, Singles]:
        """The belief about every point, `opinions` having a column of log times for each.

        What is pending counts as if it came out as believed.
        """
        self._opinions = opinions
        field = self._current(points)
        held = set(field.rows)
        for row in (*self._measured, *self._failed, *pending):
            if row not in held and len(field.rows) < KEPT:
                if row not in self._values and row not in self._failed:
                    mean, _ = self._believed(field)
                    self._values[row] = float(mean[row])
                field.add(row)
        return self._believed(field)

    def _believed(self, field: Field) -> tuple[Singles, Singles]:
        values = self._outcomes(field.rows)
        rated = self._rated(field, values)
        if rated is None:
            return field.posterior(values)
        mean, deviation = field.posterior(values - rated[field.rows])
        return mean + rated.astype(np.float32), deviation

    def _outcomes(self, rows: Sequence[int]) -> Floats:
        """Log times, eased; those of pending rows are so already."""
        told = np.array([self._values[row] for row in self._measured])
        if not len(told):
            return np.array([self._values.get(row, 0.0) for row in rows])
        best, slow = float(told.min()), float(np.quantile(told, SLOW))
        known = np.array([slow if row in self._failed else self._values[row] for row in rows])
        settled = np.array([row in self._failed or row in self._measured for row in rows])
        return np.where(settled, best + eased(np.maximum(known - best, 0.0)), known)

    def _rated(self, field: Field, values: Floats) -> Floats | None:
        """What the opinions say of every point, each weighed by how far the outcomes bear it out:
        as much as was given to begin with."""
        if self._opinions is None:
            return None
        count = self._opinions.shape[1]
        there = self._opinions[field.rows]
        columns = field.whitened(np.column_stack([there, values, np.ones(len(values))]))
        flat = columns[:, -1] / max(float(np.linalg.norm(columns[:, -1])), 1e-12)
        columns = columns[:, :-1] - np.outer(flat, flat @ columns[:, :-1])
        told, known = columns[:, -1], columns[:, :-1]
        given = np.full(count, 1 / count) if self._weights is None else self._weights
        error = float(np.mean((told - known @ given) ** 2)) + 1e-6
        trust = np.eye(count) * (error / (DOUBT / count**0.5) ** 2)
        weights = given + np.linalg.solve(known.T @ known + trust, known.T @ (told - known @ given))
        rated: Floats = self._opinions @ np.clip(weights, 0.0, 1.5)
        return rated

    def _current(self, points: Points) -> Field:
        field = self._field
        if field is None:
            field = self._field = Field(points)
        if len(field) < len(points):
            field.extend(points[len(field) :])
        if len(self._measured) >= max(2, self._fitted_at * REFIT):
            self._fitted_at = len(self._measured)
            self._refit(field, points)
        return field

    def _refit(self, field: Field, points: Points) -> None:
        rows = self._kept(FITTED)
        values = self._outcomes(rows)
        if self._opinions is not None:
            field.reset(field.scales, rows)
            rated = self._rated(field, values)
            values = values if rated is None else values - rated[rows]
        spread = float(values.std())
        scales: Scales = field.scales
        if spread > 1e-9:
            steps = FIRST_STEPS if self._fitted_at < 12 else STEPS
            scales = fitted(points[rows], (values - values.mean()) / spread, scales, steps)
        self._values = {row: self._values[row] for row in self._measured}
        field.reset(scales, self._kept(KEPT))

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
    def _beliefs(self) -> list[Belief]:
        return [Belief(None if self._sources is None else self._source_weights)]

    def _views(self) -> list[Points]:
        """The features of each belief."""
        return [self._points]

    def _opinions(self) -> list[Floats | None]:
        """What each belief is told beforehand."""
        return [self._prior_opinions]

    def _choosers(self) -> list[int]:
        """The beliefs that choose next, together."""
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
        for belief in self._beliefs:
            if row in self._outcomes.logs:
                belief.observe(row, self._outcomes.logs[row])
            else:
                belief.fail(row)

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        self._turn += 1
        self._surround()
        views, opinions = self._views(), self._opinions()
        gain = self._succeeding().astype(np.float32)
        gains = []
        for which in self._choosers():
            belief = self._beliefs[which]
            mean, deviation = belief.posterior(views[which], self._pending, opinions[which])
            gains.append(expected_improvement(mean, deviation, self._outcomes.best))
        gain *= np.mean(gains, axis=0)
        row = self._most(gain, np.flatnonzero(self._candidates.free))
        if gain[row] < LITTLE and self._turn % POLISH_EVERY == 0:
            return self._polished(gain, row)
        return row

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

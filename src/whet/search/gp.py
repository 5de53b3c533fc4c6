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
# Below this expected gain, in log time, the neighbours of the best are looked at in turn.
LITTLE = 0.003
# The quantile of the measured times that a failure counts as.
SLOW = 0.75
# How sure one may be beforehand that a prior's differences are as large as it says.
DOUBT = 0.5


class Belief:
    """One process over one set of features, with or without the prior's ratings as its mean."""

    def __init__(self, sources: Floats | None = None, weights: Floats | None = None) -> None:
        self._sources = sources
        self._weights = weights
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

    def posterior(self, points: Points, pending: dict[int, None]) -> tuple[Singles, Singles]:
        """The belief about every point. What is pending counts as if it came out as believed."""
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
        told = [self._values[row] for row in self._measured]
        slow = float(np.quantile(told, SLOW)) if told else 0.0
        return np.array([slow if row in self._failed else self._values[row] for row in rows])

    def _rated(self, field: Field, values: Floats) -> Floats | None:
        """What the sources say of every point, each weighed by how far the outcomes bear it out:
        as much as was given to begin with."""
        if self._sources is None:
            return None
        if len(self._sources) < len(field):
            usual = np.median(self._sources, axis=0)
            more = np.repeat(usual[None, :], len(field) - len(self._sources), axis=0)
            self._sources = np.vstack([self._sources, more])
        count = self._sources.shape[1]
        there = self._sources[field.rows]
        columns = field.whitened(np.column_stack([there, values, np.ones(len(values))]))
        flat = columns[:, -1] / max(float(np.linalg.norm(columns[:, -1])), 1e-12)
        columns = columns[:, :-1] - np.outer(flat, flat @ columns[:, :-1])
        told, sources = columns[:, -1], columns[:, :-1]
        given = np.full(count, 1 / count) if self._weights is None else self._weights
        error = float(np.mean((told - sources @ given) ** 2)) + 1e-6
        trust = np.eye(count) * (error / (DOUBT / count**0.5) ** 2)
        weights = given + np.linalg.solve(
            sources.T @ sources + trust, sources.T @ (told - sources @ given)
        )
        rated: Floats = self._sources @ np.clip(weights, 0.0, 1.5)
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
        if self._sources is not None:
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
        if self._sources is None:
            return [Belief()]
        return [Belief(self._sources, self._source_weights)]

    def _views(self) -> list[Points]:
        """The features of each belief."""
        return [self._points]

    def _learned(self, row: int) -> None:
        for belief in self._beliefs:
            if row in self._outcomes.logs:
                belief.observe(row, self._outcomes.logs[row])
            else:
                belief.fail(row)

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        self._turn += 1
        self._surround()
        which = self._whose_turn()
        mean, deviation = self._beliefs[which].posterior(self._views()[which], self._pending)
        gain = expected_improvement(mean, deviation, self._outcomes.best)
        gain *= self._succeeding().astype(np.float32)
        free = np.flatnonzero(self._candidates.free)
        row = self._most(gain, free)
        if gain[row] < LITTLE and self._turn % 4 < 2:
            return self._polished(mean, deviation, row)
        return row

    def _whose_turn(self) -> int:
        """Which of the beliefs chooses next."""
        return 0

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

    def _polished(self, mean: Singles, deviation: Singles, otherwise: int) -> int:
        """The neighbour of the best that promises most."""
        best = self._outcomes.best_row
        around = None if best is None else self._candidates.neighbours(best)
        if around is None or not len(around):
            return otherwise
        chance = self._succeeding()[around]
        outlook = mean[around] - 0.5 * deviation[around] - np.log(chance)
        return int(around[int(np.argmin(outlook))])

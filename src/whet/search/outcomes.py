"""What has been told so far, by row: log times, failures, and the chance of the next failure."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from whet.core.trial import Trial
from whet.learn.features import Codes, Points
from whet.learn.gaussian import matern

Floats = npt.NDArray[np.float64]

# How far an outcome tells about failures around it, in the unit cube.
REACH = 0.4
# The log odds beyond which no parameter's values make a failure more or less likely.
SUREST = 5.0
# What is known beforehand counts as much as so many outcomes.
LASTING = 10


class Outcomes:
    """A later outcome of a row replaces the earlier."""

    def __init__(self) -> None:
        self.logs: dict[int, float] = {}
        self.failed: dict[int, None] = {}

    def record(self, row: int, trial: Trial) -> None:
        ns = trial.median_ns if trial.status.measured else None
        self.logs.pop(row, None)
        self.failed.pop(row, None)
        if ns is not None and ns > 0 and math.isfinite(ns):
            self.logs[row] = math.log(ns)
        else:
            self.failed[row] = None

    def __contains__(self, row: int) -> bool:
        return row in self.logs or row in self.failed

    def __len__(self) -> int:
        return len(self.logs) + len(self.failed)

    @property
    def best(self) -> float:
        return min(self.logs.values(), default=math.inf)

    @property
    def best_row(self) -> int | None:
        return min(self.logs, key=self.logs.__getitem__, default=None)

    def fastest(self, n: int) -> list[int]:
        return sorted(self.logs, key=self.logs.__getitem__)[:n]


class Risk:
    """The chance that a row fails: what the values of its parameters say, and where outcomes are
    close by the share of failures among them.

    Nothing is computed before the first failure. `beforehand` is what is known from elsewhere,
    NaN where nothing is; it gives way as outcomes come in.
    """

    def __init__(self, outcomes: Outcomes, beforehand: Floats | None = None) -> None:
        self._outcomes = outcomes
        self._beforehand = beforehand
        self._felt = np.empty(0, np.float32)
        self._failures = np.empty(0, np.float32)
        self._counted: dict[int, bool] = {}

    def succeeding(self, points: Points, codes: Codes) -> Floats:
        """The chance of success of every row."""
        outcomes = self._outcomes
        if not outcomes.failed and self._beforehand is None:
            return np.ones(len(points))
        self._count(points)
        expected = self._by_values(codes)
        if self._beforehand is not None:
            at = np.flatnonzero(~np.isnan(self._beforehand))
            share = LASTING / (LASTING + len(outcomes))
            expected[at] = share * self._beforehand[at] + (1 - share) * expected[at]
        chance: Floats = 1 - (self._failures + expected) / (self._felt + 1)
        return np.maximum(chance, 1e-3)

    def _by_values(self, codes: Codes) -> Floats:
        """Naive Bayes: each parameter's value speaks for itself."""
        failed, worked = list(self._outcomes.failed), list(self._outcomes.logs)
        odds = np.full(len(codes), np.log((len(failed) + 0.5) / (len(worked) + 0.5)))
        if not failed or not worked:
            return np.asarray(1 / (1 + np.exp(-np.clip(odds, -SUREST, SUREST))))
        for column in codes.T:
            values = int(column.max()) + 1
            bad = np.bincount(column[failed], minlength=values) + 0.5
            good = np.bincount(column[worked], minlength=values) + 0.5
            odds += (np.log(bad / bad.sum()) - np.log(good / good.sum()))[column]
        return np.asarray(1 / (1 + np.exp(-np.clip(odds, -SUREST, SUREST))))

    def _count(self, points: Points) -> None:
        outcomes = self._outcomes
        replaced = any(failed != (row in outcomes.failed) for row, failed in self._counted.items())
        if len(self._felt) != len(points) or replaced:
            self._felt = np.zeros(len(points), np.float32)
            self._failures = np.zeros(len(points), np.float32)
            self._counted = {}
        for row in (*outcomes.logs, *outcomes.failed):
            if row not in self._counted:
                felt = matern(((points - points[row]) ** 2).sum(axis=1) / np.float32(REACH**2))
                failed = row in outcomes.failed
                self._felt += felt
                self._failures += felt * np.float32(failed)
                self._counted[row] = failed

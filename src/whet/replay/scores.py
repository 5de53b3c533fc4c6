"""The community's score: how far between random search and the optimum a strategy has come.

After Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning"
(Future Generation Computer Systems, 2024). A score of 0 is random search, whose expected course is
calculated instead of simulated; 1 is the optimum at once; below 0 is worse than random. It is taken
from the first evaluation to the point where random search has gone 95 % of the way from the median
config to the optimum, in evaluations and in simulated seconds, and averaged: over that range, over
repeats, and over tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from whet.replay.charges import NS_PER_S, Overhead, build_s
from whet.replay.lab import Case, Replayed

Array = npt.NDArray[np.float64]
Axis = Literal["evaluations", "time"]

CUTOFF = 0.95
POINTS = 50
CONFIDENCE = 0.95
RESAMPLES = 400

# So many configs tell the mean cost of one.
_COSTED = 500


@dataclass(frozen=True, eq=False)
class Baseline:
    """Random search without repetition among the configs that work, and how far to follow it."""

    case: Case
    most_evals: int

    @cached_property
    def times(self) -> Array:
        """Fastest first."""
        medians = self.case.workload.medians
        return np.sort(medians[~np.isnan(medians)])

    @property
    def optimum_ns(self) -> float:
        optimum = self.case.workload.optimum
        assert optimum is not None
        return optimum.ns

    def ns(self, evals: Array) -> Array:
        """Of n draws among N the best is expected to have the rank (N + 1) / (n + 1)."""
        ranks = (len(self.times) + 1) / (evals + 1)
        found = np.interp(ranks - 1, np.arange(len(self.times)), self.times)
        return np.asarray(np.maximum(found, self.optimum_ns))

    @cached_property
    def evals(self) -> int:
        """When random search has come so far, or the most that may be simulated."""
        best, median = self.times[0], float(np.median(self.times))
        good = int(np.searchsorted(self.times, best + (1 - CUTOFF) * (median - best), "right"))
        needed = int(np.ceil((len(self.times) + 1) / good)) - 1
        return max(2, min(needed, self.most_evals))

    @cached_property
    def eval_s(self) -> float:
        """The mean cost of evaluating a config that works, with three samples."""
        table, workload = self.case.table, self.case.workload
        works = np.flatnonzero(~np.isnan(workload.medians))
        listed = works[np.linspace(0, len(works) - 1, min(_COSTED, len(works))).astype(int)]
        spent = 0.0
        for at in map(int, listed):
            overhead = Overhead.of(workload, at)
            sample_s = float(workload.medians[at]) / NS_PER_S
            spent += build_s(table, at) + overhead.once + 3 * (overhead.each + sample_s)
        return spent / len(listed)

    def axis(self, axis: Axis) -> Array:
        if axis == "evaluations":
            return np.linspace(1, self.evals, POINTS).round()
        return np.linspace(1, self.evals, POINTS) * self.eval_s

    def along(self, axis: Axis) -> Array:
        places = self.axis(axis)
        return self.ns(places if axis == "evaluations" else np.maximum(1, places / self.eval_s))


def score_curves(replayed: Replayed, baseline: Baseline, axis: Axis) -> Array:
    """One row a repeat, one column a point of the axis."""
    places, random_ns = baseline.axis(axis), baseline.along(axis)
    rows = []
    for course in replayed.courses:
        best = np.minimum(np.array(course.best_ns), baseline.times[-1])
        if axis == "evaluations":
            seen = np.minimum(places.astype(int), len(best))
        else:
            seen = np.searchsorted(np.array(course.seconds), places, "right")
        rows.append(np.concatenate([baseline.times[-1:], best])[seen])
    gap = random_ns - baseline.optimum_ns
    missed = np.array(rows) - baseline.optimum_ns
    level = np.maximum(gap, 1e-9 * baseline.optimum_ns)
    return np.where(gap > 0, 1 - missed / level, np.where(missed > 0, 0.0, 1.0))


@dataclass(frozen=True)
class Score:
    """`curve` is by point of the axis, with the ends of its confidence band; `tables` has the mean
    of each table's own curve, in the order of the cases."""

    search: str
    axis: Axis
    mean: float
    low: float
    high: float
    curve: Array
    curve_low: Array
    curve_high: Array
    tables: tuple[float, ...]


def score(
    mine: Sequence[Replayed], baselines: Sequence[Baseline], axis: Axis, seed: int = 0
) -> Score:
    """Of one strategy over all tables; the bands come from drawing repeats anew."""
    curves = [score_curves(one, base, axis) for one, base in zip(mine, baselines, strict=True)]
    means = np.array([curve.mean(axis=0) for curve in curves])
    rng = np.random.default_rng(seed)
    drawn = np.zeros((RESAMPLES, POINTS))
    for curve in curves:
        weights = rng.multinomial(len(curve), [1 / len(curve)] * len(curve), RESAMPLES)
        drawn += weights @ curve / len(curve) / len(curves)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(drawn.mean(axis=1), [tail, 100 - tail])
    curve_low, curve_high = np.percentile(drawn, [tail, 100 - tail], axis=0)
    return Score(
        search=mine[0].search,
        axis=axis,
        mean=float(means.mean()),
        low=float(low),
        high=float(high),
        curve=means.mean(axis=0),
        curve_low=curve_low,
        curve_high=curve_high,
        tables=tuple(float(one) for one in means.mean(axis=1)),
    )

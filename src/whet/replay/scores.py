"""The community's score: how far between random search and the optimum a strategy has come.

After Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning"
(Future Generation Computer Systems, 2024). A score of 0 is random search, 1 the optimum at once,
below 0 is worse than random. It is taken from the first evaluation to the point where random search
has gone 95 % of the way from the median config to the optimum, in evaluations and in simulated
seconds, and averaged: over that range, over repeats, and over tables.

Unlike there, random search is that of `whet.search`: it begins with the author's first config and
meets configs that fail. Both sides pay alike for those: an evaluation, the time it takes, and the
median of the configs that work for as long as nothing faster than that is known.

`random` itself is expected to score 0, but for one thing: it is shown a few samples of a config and
the calculation the true median. A single repeat of it scatters by about 0.6 around that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.measure.racing.stats import t_quantile
from whet.replay.lab import Case, Experiment, Replayed, replay
from whet.replay.simulation import NS_PER_S, Horizon, Overhead, build_s
from whet.replay.table import Optimum

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Axis = Literal["evaluations", "time"]

CUTOFF = 0.95
POINTS = 50
CONFIDENCE = 0.95

# So many random courses tell what to expect at a given second.
_COURSES = 2000

# Where random search is as near to the optimum as this, in parts of the way from the median, the
# score only says who else is.
_ARRIVED = 0.01

DEFAULT = "auto"

# Beyond these a difference is only that of sums in another order.
_DIGITS = 9

AXES: tuple[Axis, ...] = ("evaluations", "time")

# A repeat of random search takes milliseconds, and scatters more than that of any other.
RANDOM_TIMES = 10


@dataclass(frozen=True, eq=False)
class Baseline:
    """The author's first config, then random search without repetition among all others whose
    outcome is known; and how far to follow it."""

    case: Case
    most_evals: int

    @cached_property
    def tried(self) -> Ints:
        """The configs that a strategy may ask for, the author's first one first."""
        table, workload, first = self.case.table, self.case.workload, self.case.space.first
        known = (at for at in range(len(table.configs)) if table.status(workload, at) is not None)
        return np.array(sorted(known, key=lambda at: table.configs[at] != first))

    @cached_property
    def medians(self) -> Array:
        """Of each of `tried`, NaN where it fails or was timed less cleanly than the optimum."""
        workload = self.case.workload
        quality = workload.quality(self.optimum.index)
        clean = [workload.quality(int(at)) == quality for at in self.tried]
        return np.where(clean, workload.medians[self.tried], np.nan)

    @cached_property
    def values(self) -> Array:
        """What each of `tried` is worth as the best one known."""
        return self.worth(np.nan_to_num(self.medians, nan=np.inf))

    def worth(self, best_ns: Array) -> Array:
        return np.asarray(np.minimum(best_ns, self.start_ns))

    @cached_property
    def start_ns(self) -> float:
        """Until something faster is known: the median of the configs that work."""
        return float(np.nanmedian(self.medians))

    @property
    def optimum(self) -> Optimum:
        optimum = self.case.workload.optimum
        assert optimum is not None
        return optimum

    @cached_property
    def expected_ns(self) -> Array:
        """After one evaluation, after two and so on, exactly: the best of some draws is slower than
        the fastest k configs in as many cases as none of those was drawn."""
        first, others = self.values[0], np.sort(np.minimum(self.values[0], self.values[1:]))
        count, found = len(others), [float(first)]
        slower, missed = np.arange(count - 1, 0, -1.0), np.ones(max(0, count - 1))
        for drawn in range(min(count, self.most_evals - 1)):
            missed = missed * np.maximum(slower - drawn, 0) / (count - drawn)
            found.append(float(others[0] + np.diff(others) @ missed))
        return np.array(found)

    @cached_property
    def evals(self) -> int:
        """When random search has come so far, or the most that may be simulated."""
        goal = self.optimum.ns + (1 - CUTOFF) * (self.start_ns - self.optimum.ns)
        reached = np.flatnonzero(self.expected_ns <= goal)
        needed = int(reached[0]) + 1 if len(reached) else len(self.expected_ns)
        return max(2, min(needed, self.most_evals))

    @cached_property
    def costs(self) -> Array:
        """Seconds for each of `tried`: its build, loading and three samples."""
        table, workload = self.case.table, self.case.workload
        costs = []
        for at in map(int, self.tried):
            overhead, visits = Overhead.of(workload, at), workload.samples(at)
            spent = build_s(table, at) + overhead.once
            if visits:
                sample_s = float(workload.medians[at]) / NS_PER_S
                spent += min(3, len(visits[0])) * (overhead.each + sample_s)
            costs.append(spent)
        return np.array(costs)

    @property
    def eval_s(self) -> float:
        return float(self.costs.mean())

    @property
    def horizon(self) -> Horizon:
        """What comes later is not scored."""
        return Horizon(self.evals, self.evals * self.eval_s)

    def axis(self, axis: Axis) -> Array:
        if axis == "evaluations":
            return np.linspace(1, self.evals, POINTS).round()
        return np.linspace(1, self.evals, POINTS) * self.eval_s

    def along(self, axis: Axis) -> Array:
        """What random search is expected to have found at each place of the axis."""
        if axis == "time":
            return self._over_time
        at = np.minimum(self.axis(axis).astype(int), len(self.expected_ns)) - 1
        return np.asarray(self.expected_ns[at])

    @cached_property
    def _over_time(self) -> Array:
        """Simulated, since costs differ and may go with speed; less what the same draws miss the
        expected course over evaluations by."""
        rng = np.random.default_rng(0)
        others = len(self.tried) - 1
        evals, seconds = self.axis("evaluations"), self.axis("time")
        total = np.zeros(POINTS)
        for _ in range(_COURSES):
            chosen = rng.choice(others, min(others, self.most_evals - 1), replace=False)
            drawn = np.append(0, 1 + chosen)
            best = np.minimum.accumulate(self.values[drawn])
            total += _known(best, np.cumsum(self.costs[drawn]), seconds, self.start_ns)
            total -= _known(best, np.arange(1.0, len(drawn) + 1), evals, self.start_ns)
        return self.along("evaluations") + total / _COURSES


def _known(best_ns: Array, seconds: Array, places: Array, start_ns: float) -> Array:
    """The best at each of some points in time."""
    return np.append(start_ns, best_ns)[np.searchsorted(seconds, places, "right")]


def score_curves(replayed: Replayed, baseline: Baseline, axis: Axis) -> Array:
    """One row a repeat, one column a point of the axis."""
    places = baseline.axis(axis)
    rows = []
    for course in replayed.courses:
        best = baseline.worth(np.array(course.best_ns))
        counted = np.arange(1.0, len(best) + 1) if axis == "evaluations" else course.seconds
        rows.append(_known(best, np.array(counted), places, baseline.start_ns))
    optimum_ns = baseline.optimum.ns
    gap, missed = baseline.along(axis) - optimum_ns, np.array(rows) - optimum_ns
    least = _ARRIVED * (baseline.start_ns - optimum_ns)
    level = np.where(gap > least, gap, 1.0)
    return np.where(gap > least, 1 - missed / level, np.where(missed > least, 0.0, 1.0))


@dataclass(frozen=True)
class Score:
    """`curve` is by point of the axis, with the ends of its confidence band; `tables` has the mean
    of each table's own curve, in the order of the cases, and `repeats` that of each repeat over all
    tables. `half` is half the width of the mean's confidence interval, infinite for one repeat."""

    search: str
    axis: Axis
    mean: float
    half: float
    curve: Array
    curve_low: Array
    curve_high: Array
    tables: tuple[float, ...]
    repeats: tuple[float, ...]


def score(mine: Sequence[Replayed], baselines: Sequence[Baseline], axis: Axis) -> Score:
    """Of one strategy over all tables.

    A repeat has the same seed on every table and may be lucky on all of them, so what scatters is
    the mean over the tables.
    """
    curves = np.array(
        [score_curves(one, base, axis) for one, base in zip(mine, baselines, strict=True)]
    )
    by_repeat = curves.mean(axis=0)
    curve, repeats = by_repeat.mean(axis=0), by_repeat.mean(axis=1)
    band = half_width(by_repeat) if len(repeats) > 1 else 0.0
    return Score(
        search=mine[0].search,
        axis=axis,
        mean=float(repeats.mean()),
        half=float(half_width(repeats)),
        curve=curve,
        curve_low=curve - band,
        curve_high=curve + band,
        tables=tuple(float(one) for one in curves.mean(axis=(1, 2))),
        repeats=tuple(float(one) for one in repeats),
    )


def half_width(values: Array) -> Array:
    """Half the confidence interval of the mean over the first axis, by Student's distribution."""
    count = len(values)
    if count < 2:
        return np.full(values.shape[1:], np.inf)
    error = values.std(axis=0, ddof=1) / math.sqrt(count)
    return np.asarray(t_quantile(CONFIDENCE, count - 1) * error)


@dataclass(frozen=True)
class Lead:
    """By how much one strategy scored more than another, and half its confidence interval."""

    over: str
    by: float
    half: float

    @property
    def sure(self) -> bool:
        return abs(self.by) > self.half


def lead(one: Score, other: Score) -> Lead:
    """Repeats of one seed are compared with each other, since they see the same noise; where one
    of the two has more of them, the means are."""
    by = round(one.mean - other.mean, _DIGITS)
    counts = sorted(len(score.repeats) for score in (one, other))
    if counts[0] == counts[1]:
        return Lead(other.search, by, float(half_width(np.subtract(one.repeats, other.repeats))))
    if counts[0] < 2:
        return Lead(other.search, by, math.inf)
    errors = (np.std(s.repeats, ddof=1) / math.sqrt(len(s.repeats)) for s in (one, other))
    return Lead(other.search, by, t_quantile(CONFIDENCE, counts[0] - 1) * math.hypot(*errors))


@dataclass(frozen=True)
class Standing:
    """All strategies over one axis, the best first. `level` are those that cannot be told from the
    best, itself among them.

    To pick the best of many and then compare it with the next one finds no more differences than
    there are: among equals the two luckiest are nearer to each other than any two are.
    """

    order: tuple[Score, ...]

    @classmethod
    def of(cls, scores: Sequence[Score]) -> Standing:
        return cls(tuple(sorted(scores, key=lambda one: -one.mean)))

    @property
    def best(self) -> Score:
        return self.order[0]

    @property
    def level(self) -> tuple[str, ...]:
        others = (one for one in self.order[1:] if not lead(self.best, one).sure)
        return (self.best.search, *(one.search for one in others))

    def lead_of(self, search: str) -> Lead:
        """Of the best over the nearest one that cannot be told from it, or else the next; of any
        other over the best, which is negative."""
        mine = next(one for one in self.order if one.search == search)
        if mine is not self.best:
            return lead(mine, self.best)
        rivals = [one for one in self.order[1:] if one.search in self.level]
        return lead(mine, (rivals or self.order[1:])[0])


def recommended(standings: Sequence[Standing]) -> str | None:
    """One that is level with the best over every axis: the default where it is, else the one with
    the most. None where the axes agree on nobody."""
    level = set.intersection(*(set(one.level) for one in standings))
    if DEFAULT in level or not level:
        return DEFAULT if level else None
    totals = dict.fromkeys(sorted(level), 0.0)
    for standing in standings:
        for one in standing.order:
            if one.search in totals:
                totals[one.search] += one.mean
    return max(totals, key=lambda name: round(totals[name], _DIGITS))


@dataclass(frozen=True, eq=False)
class StrategyComparison:
    baselines: tuple[Baseline, ...]
    found: tuple[Replayed, ...]
    standings: Mapping[Axis, Standing]

    def own_ms(self, search: str) -> float:
        """The strategy's own time per evaluation."""
        mine = [one.search_ms_per_eval for one in self.found if one.search == search]
        return sum(mine) / len(mine)


def contest(
    cases: Sequence[Case],
    searches: Sequence[str],
    evals: int,
    repeats: int,
    seed: int = 0,
    jobs: int = 1,
    done: Callable[[int, int], None] | None = None,
) -> StrategyComparison:
    """No tuning goes on beyond what is scored."""
    baselines = tuple(Baseline(case, evals) for case in cases)
    often = {"random": RANDOM_TIMES * repeats} if repeats > 1 else {}
    experiment = Experiment(
        tuple(cases),
        tuple(searches),
        evals,
        repeats,
        seed,
        repeats_of=FrozenMap(often),
        horizons=tuple(one.horizon for one in baselines),
    )
    found = tuple(replay(experiment, jobs, done))
    by_search = {name: [one for one in found if one.search == name] for name in searches}
    standings = {
        axis: Standing.of([score(mine, baselines, axis) for mine in by_search.values()])
        for axis in AXES
    }
    return StrategyComparison(baselines, found, standings)

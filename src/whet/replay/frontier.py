"""Pareto frontiers of tuning time and performance, and whether one lies above another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.replay.lab import Case, Experiment, TableSource, replay
from whet.replay.pareto import SEQUENTIAL, Array, Cloud, Draws, Ints, Paper, racing_clouds
from whet.replay.simulation import Course
from whet.replay.table import Table, TableWorkload
from whet.search import takes_prior

RESAMPLES = 200
TARGET = 0.95

# Less of the area under a frontier than this is nothing one would change a tuner for.
MATTERS = 0.01

# Where fewer of the resamples than this get to `TARGET`, nothing is said about when.
CERTAIN = 0.9

Done = Callable[[int, int], None]

# A race takes some milliseconds, the paper's simulation of the same run next to nothing.
RACED_DRAWS = 200


@dataclass(frozen=True)
class Frontier:
    """The draws that no other draw beats in both, the quickest first."""

    rows: Ints
    seconds: Array
    fraction: Array

    @classmethod
    def of(cls, cloud: Cloud) -> Frontier:
        return _frontier(cloud.seconds.mean(axis=1), cloud.fraction.mean(axis=1))

    def seconds_to(self, fraction: float) -> float | None:
        """When it is reached; None where it never is."""
        at = int(np.searchsorted(self.fraction, fraction))
        return float(self.seconds[at]) if at < len(self.seconds) else None


@dataclass(frozen=True)
class Comparison:
    """`gain` is the difference in area, the mean fraction of the optimum over the logarithm of
    tuning time, with the ends of its confidence interval; `before` and `after` are the seconds to
    `TARGET` of the optimum, and `sooner` the ends of the interval of `before` over `after`, None
    where that cannot be told."""

    name: str
    against: str
    gain: float
    low: float
    high: float
    before: float | None
    after: float | None
    sooner: tuple[float, float] | None = None

    @property
    def moves(self) -> bool:
        """By an amount that may matter, in a direction that is certain."""
        return not (self.low <= 0 <= self.high or self._hardly)

    @property
    def _hardly(self) -> bool:
        return self.low > -MATTERS and self.high < MATTERS

    @property
    def verdict(self) -> str:
        """One sentence, starting with what was changed. The frontier as a whole and when `TARGET`
        is reached are two things, each with an interval of its own. What is said follows from the
        ends of the interval alone: another seed moves the estimate within it."""
        return (
            f"{self.name} {self._does}: area {self.gain:+.3f} "
            f"(95 % interval {self.low:+.3f} to {self.high:+.3f}){self._reached}"
        )

    @property
    def _does(self) -> str:
        beyond = "" if self.against == SEQUENTIAL else f" beyond {self.against}"
        if self._hardly:
            return f"hardly moves the frontier{beyond}"
        if not self.moves:
            return f"cannot be told apart from {self.against}"
        back = "" if self.gain > 0 else " back"
        least = min(abs(self.low), abs(self.high))
        perhaps = "" if least >= MATTERS else ", perhaps by too little to matter"
        return f"moves the frontier{back}{beyond}{perhaps}"

    @property
    def _reached(self) -> str:
        target = f"{100 * TARGET:.0f} % of the optimum"
        if self.after is None and self.before is None:
            return f"; neither reaches {target}"
        if self.after is None:
            return f"; it never reaches {target}, which takes {self.before:.3g} s without it"
        if self.before is None:
            return f"; it reaches {target} after {self.after:.3g} s, and never without it"
        return f"; {self._compared(self.before, self.after, target)}"

    def _compared(self, before: float, after: float, target: str) -> str:
        if self.sooner is None:
            return f"{target} after {after:.3g} s and {before:.3g} s, too uncertain to compare"
        ratio, (low, high) = before / after, self.sooner
        forward = self.gain > 0 if self.moves else None
        if low <= 1 <= high:
            but = "" if forward is None else "but "
            return (
                f"{but}no clear difference at {target}: {after:.3g} s against {before:.3g} s "
                f"({ratio:.2f}× as fast, {low:.2f} to {high:.2f})"
            )
        if low > 1:
            but, word = "" if forward else "but ", "sooner"
        else:
            but, word = "but " if forward else "", "later"
            ratio, low, high = 1 / ratio, 1 / high, 1 / low
        return (
            f"{but}{target} {ratio:.2f}× {word} ({low:.2f} to {high:.2f}): after {after:.3g} s "
            f"instead of {before:.3g} s"
        )


def compare(cloud: Cloud, base: Cloud, name: str, seed: int = 0) -> Comparison:
    """The frontier is chosen by one half of the runs and read off the other, so that the lucky
    averages, of which many draws have more than few, are not mistaken for good ones."""
    times = np.concatenate([one.seconds.mean(axis=1) for one in (cloud, base)])
    span = float(times.min()), float(times.max())
    mine, other = _read_off(cloud, span, seed), _read_off(base, span, seed)
    gains = mine.areas - other.areas
    half = 1.96 * float(gains[1:].std())
    return Comparison(
        name,
        base.name,
        float(gains[0]),
        float(gains[0]) - half,
        float(gains[0]) + half,
        Frontier.of(base).seconds_to(TARGET),
        Frontier.of(cloud).seconds_to(TARGET),
        _sooner(mine.reached, other.reached),
    )


def _sooner(after: Array, before: Array) -> tuple[float, float] | None:
    """The interval around the ratio of the first two; None where too often one of them never
    gets there."""
    known = np.isfinite(after) & np.isfinite(before)
    if not known[0] or known.mean() < CERTAIN:
        return None
    ratios = np.log(before[known] / after[known])
    half = 1.96 * float(ratios[1:].std())
    return math.exp(ratios[0] - half), math.exp(ratios[0] + half)


def _frontier(seconds: Array, fraction: Array) -> Frontier:
    order = np.lexsort((-fraction, seconds))
    before = np.concatenate([[-math.inf], np.maximum.accumulate(fraction[order])[:-1]])
    kept = order[fraction[order] > before]
    return Frontier(kept, seconds[kept], fraction[kept])


@dataclass(frozen=True)
class _Read:
    """The first as it is, the others with the runs of each half drawn anew: the area under the
    frontier, and the seconds to `TARGET`, infinite where it is never reached."""

    areas: Array
    reached: Array


def _read_off(cloud: Cloud, span: tuple[float, float], seed: int) -> _Read:
    """Clouds of the same shape are drawn alike, which pairs those that were simulated on the same
    runs."""
    rng = np.random.default_rng(seed)
    draws, runs = cloud.seconds.shape
    halves = np.arange(runs) < runs // 2, np.arange(runs) >= runs // 2
    areas, reached = [], []
    for resample in range(RESAMPLES + 1):
        means, share = [], []
        for half in halves:
            size = int(half.sum())
            rows = 1 if cloud.linked else draws
            drawn = rng.multinomial(size, [1 / size] * size, rows)
            counted = np.zeros((rows, runs))
            counted[:, half] = drawn / size if resample else 1 / size
            means.append(
                [(values * counted).sum(axis=1) for values in (cloud.seconds, cloud.fraction)]
            )
            share.append(size / runs)
        pairs = ((means[0], means[1]), (means[1], means[0]))
        areas.append(sum(_area(chooser, reader, span) for chooser, reader in pairs) / 2)
        seconds, fraction = (means[0][at] * share[0] + means[1][at] * share[1] for at in (0, 1))
        first = _frontier(seconds, fraction).seconds_to(TARGET)
        reached.append(math.inf if first is None else first)
    return _Read(np.array(areas), np.array(reached))


def _area(chooser: Sequence[Array], reader: Sequence[Array], span: tuple[float, float]) -> float:
    """The mean of the reader's fraction over log time, at the points that the chooser picks."""
    chosen = _frontier(*chooser)
    edges = np.log(np.concatenate([np.clip(chosen.seconds, *span), [span[1]]]))
    width = math.log(span[1] / span[0]) or 1.0
    return float((np.diff(edges) * reader[1][chosen.rows]).sum() / width)


@dataclass(frozen=True, eq=False)
class WorkingCase(Case):
    """Only the configs that work, since the paper's runs explore no others."""

    @cached_property
    def space(self) -> Space:
        works = np.flatnonzero(~np.isnan(self.workload.medians))
        return Space([self.table.configs[int(at)] for at in works])


@dataclass(frozen=True)
class Study:
    clouds: tuple[Cloud, ...]
    comparisons: tuple[Comparison, ...]
    overhead_known: bool

    @cached_property
    def frontiers(self) -> dict[str, Frontier]:
        return {cloud.name: Frontier.of(cloud) for cloud in self.clouds}


def study(
    table: Table,
    workloads: Sequence[TableWorkload],
    plan: Draws,
    searches: Sequence[str] = (),
    jobs: int = 1,
    part: Callable[[str, int, int], Done] | None = None,
) -> Study:
    """The paper's variants, racing, and strategies with and without what the table's other
    workloads teach. `part("racing", 1, 5)` is asked for whom to tell how far the first of five
    parts has come."""
    paper = Paper.of(table, list(workloads), plan)
    sequential, parallel, stopped, stopped_parallel = paper.clouds()
    draws = min(RACED_DRAWS, plan.draws)
    added = list(_added(table, searches))
    parts = 1 + len(added)
    told = None if part is None else part("racing", 1, parts)
    raced, raced_parallel = racing_clouds(table, workloads, paper, draws, jobs, told)
    clouds = [sequential, parallel, stopped, stopped_parallel, raced, raced_parallel]
    comparisons = [
        compare(parallel, sequential, "parallel compilation"),
        compare(stopped, sequential, "early stopping"),
        compare(stopped_parallel, parallel, "early stopping"),
        compare(raced, sequential.first(draws), "racing"),
        compare(raced_parallel, parallel.first(draws), "racing"),
    ]
    for number, (name, search, transfer, parallel_builds) in enumerate(added, 2):
        batch, base = (plan.compile_factor, parallel) if parallel_builds else (1, sequential)
        cases = spread_cases(table, workloads, plan.runs, transfer)
        named = f"{name} + {plan.parallel}" if parallel_builds else name
        told = None if part is None else part(named, number, parts)
        found = strategy_cloud(named, cases, search, plan, batch, jobs, told)
        clouds.append(found)
        comparisons.append(compare(found, base, name))
    return Study(tuple(clouds), tuple(comparisons), paper.overhead_known)


def _added(table: Table, searches: Sequence[str]) -> Iterator[tuple[str, str, bool, bool]]:
    """Name, strategy, whether it is taught and whether it compiles many at once."""
    for search in searches:
        learns = len(table.workloads) > 1 and takes_prior(search)
        for transfer in (False, True) if learns else (False,):
            for parallel in (False, True):
                yield f"{search} + transfer" if transfer else search, search, transfer, parallel


def strategy_cloud(
    name: str,
    cases: Sequence[Case],
    search: str,
    plan: Draws,
    batch: int,
    jobs: int = 1,
    done: Done | None = None,
) -> Cloud:
    """Row n is after n evaluations; the runs are spread over the cases. Builds of a batch are as
    evenly spread as the paper's effective factor has them."""
    most = min(plan.configs[1], *(len(case.space) for case in cases))
    each = -(-plan.runs // len(cases))
    experiment = Experiment(tuple(cases), (search,), most, each, plan.seed, batch, even_builds=True)
    every = [
        (one.case, course) for one in replay(experiment, jobs, done) for course in one.courses
    ][: plan.runs]
    configs = np.arange(max(1, plan.configs[0]), most + 1)
    return Cloud(
        name=name,
        seconds=np.array([_padded(course.seconds, configs) for _, course in every]).T,
        fraction=np.array([_fractions(case, course, configs) for case, course in every]).T,
        configs=configs,
        linked=True,
    )


def spread_cases(
    table: Table, workloads: Sequence[TableWorkload], most: int, transfer: bool = False
) -> list[Case]:
    """At most so many of the workloads; with `transfer` taught by the table's others."""
    spread = np.linspace(0, len(workloads) - 1, min(most, len(workloads))).round().astype(int)
    cases: list[Case] = [WorkingCase("", table, workloads[at]) for at in spread]
    if not transfer:
        return cases
    sources = [TableSource("", table, one) for one in table.workloads if one.optimum is not None]
    return [case.with_sources(sources) for case in cases]


def _padded(values: Sequence[float], configs: Ints) -> Array:
    return np.asarray(np.array(values)[np.minimum(configs, len(values)) - 1])


def _fractions(case: Case, course: Course, configs: Ints) -> Array:
    optimum = case.workload.optimum
    assert optimum is not None
    return optimum.ns / _padded(course.best_ns, configs)

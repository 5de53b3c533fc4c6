"""Many simulated tunings: which strategies on which tables, how often, from which seed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.replay.simulation import Course, Horizon, replay_space, simulate
from whet.replay.table import Table, TableWorkload, canonical
from whet.search import Strategy, make_strategy

if TYPE_CHECKING:
    from whet.learn.prior import Prior

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class TableSource:
    """One workload of a table, and what the table is called."""

    name: str
    table: Table
    workload: TableWorkload

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for config in self.table.configs for name in config)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """One for each config with a known outcome, timed by its true median."""
        id, medians = self.table.described(self.workload).id, self.workload.medians
        timer = self.table.origin.timer or "replay"
        made = []
        for at, config in enumerate(self.table.configs):
            status = self.table.status(self.workload, at)
            if status is None:
                continue
            timing = Timing((float(medians[at]),), timer) if status.measured else None
            facts = self.table.builds[at].facts
            made.append(Trial(id, config, status, timing, facts=facts, id=config.id))
        return tuple(made)

    def same_as(self, other: TableSource) -> bool:
        return (
            self.table.kernel == other.table.kernel
            and self.table.device.name == other.table.device.name
            and canonical(self.workload.key) == canonical(other.workload.key)
        )


@dataclass(frozen=True, eq=False)
class Case(TableSource):
    """A workload to tune, with the others that may be learned from."""

    sources: tuple[TableSource, ...] = ()

    @cached_property
    def space(self) -> Space:
        return replay_space(self.table, self.workload)

    @cached_property
    def prior(self) -> Prior | None:
        if not self.sources:
            return None
        from whet.learn.prior import prior_from

        return prior_from([source.trials for source in self.sources], self.space)

    def with_sources(self, others: Iterable[TableSource]) -> Case:
        """Those that tune the same parameters. The workload itself never is its own source."""
        fit = tuple(one for one in others if one.names == self.names and not one.same_as(self))
        return replace(self, sources=fit)

    def strategy(self, search: str, seed: int) -> Strategy:
        """As within a budget, however small the space: what counts is what few evaluations find."""
        return make_strategy(search, self.space, seed, transfer=self.prior, whole=False)


@dataclass(frozen=True)
class Experiment:
    """Repeat `r` gives the seed `seed + r` to the strategy and to the samples it is shown.

    `repeats_of` has the strategies that are repeated more often or less than `repeats`; `horizons`
    are by case, and none where every tuning goes on to the last evaluation.
    """

    cases: tuple[Case, ...]
    searches: tuple[str, ...]
    evals: int
    repeats: int = 20
    seed: int = 0
    batch: int = 1
    even_builds: bool = False
    repeats_of: FrozenMap[int] = field(default_factory=FrozenMap)
    horizons: tuple[Horizon, ...] = ()

    @property
    def tasks(self) -> list[tuple[int, str, int]]:
        """Case, strategy and repeat of every tuning. Each stretch of the list has its share of all
        strategies and cases, so that it takes its share of the time."""
        return [
            (number, search, repeat)
            for turn in range(self.repeats)
            for number in range(len(self.cases))
            for search in self.searches
            for repeat in self.repeated(search)[turn :: self.repeats]
        ]

    def repeated(self, search: str) -> range:
        return range(self.repeats_of.get(search, self.repeats))


@dataclass(frozen=True)
class Replayed:
    """All repeats of one strategy on one case."""

    case: Case
    search: str
    courses: tuple[Course, ...]

    @property
    def search_ms_per_eval(self) -> float:
        spent = sum(course.search_s for course in self.courses)
        return 1e3 * spent / max(1, sum(len(course.evaluations) for course in self.courses))

    def fractions(self, evals: int) -> list[float]:
        """Of the optimum, by repeat; a workload on which nothing works has none to miss."""
        optimum = self.case.workload.optimum
        if optimum is None:
            return [1.0] * len(self.courses)
        return [course.fraction(evals, optimum.ns) for course in self.courses]


def cases_of(name: str, table: Table, workloads: int | None = None) -> list[Case]:
    """One for each workload, or an evenly spread sample of so many of them."""
    listed = table.workloads
    if workloads is not None and workloads < len(listed):
        spread = np.linspace(0, len(listed) - 1, workloads).round().astype(int)
        listed = tuple(listed[at] for at in spread)
    return [Case(name, table, workload) for workload in listed]


def replay(
    experiment: Experiment, jobs: int = 1, done: Callable[[int, int], None] | None = None
) -> list[Replayed]:
    """Case by case, strategy by strategy; `done(finished, all)` is called after each tuning."""
    tasks = experiment.tasks
    for case in experiment.cases:
        _ = case.space, case.workload.medians  # made once, before any process is forked
    courses: dict[tuple[int, str, int], Course] = {}
    for task, course in zip(tasks, forked(run_one, experiment, tasks, jobs), strict=True):
        courses[task] = course
        if done is not None:
            done(len(courses), len(tasks))
    return [
        Replayed(case, search, tuple(courses[at, search, r] for r in experiment.repeated(search)))
        for at, case in enumerate(experiment.cases)
        for search in experiment.searches
    ]


def run_one(experiment: Experiment, task: tuple[int, str, int]) -> Course:
    """Making the strategy counts as its own time too."""
    number, search, repeat = task
    case, seed = experiment.cases[number], experiment.seed + repeat
    _ = case.space, case.prior
    began = time.perf_counter()
    strategy = case.strategy(search, seed)
    made = time.perf_counter() - began
    course = simulate(
        case.table,
        case.workload,
        strategy,
        experiment.evals,
        seed=seed,
        batch=experiment.batch,
        even_builds=experiment.even_builds,
        horizon=experiment.horizons[number] if experiment.horizons else None,
    )
    return replace(
        course,
        search_s=course.search_s + made,
        seconds=tuple(elapsed + made for elapsed in course.seconds),
    )


def forked(
    work: Callable[[Shared, Task], Found], shared: Shared, tasks: Sequence[Task], jobs: int
) -> Iterator[Found]:
    """`work(shared, task)` of each task, in order; in this process where `jobs` is 1."""
    if min(jobs, len(tasks)) <= 1:
        yield from (work(shared, task) for task in tasks)
        return
    context = get_context("fork")
    with ProcessPoolExecutor(min(jobs, len(tasks)), context, _enter, (work, shared)) as pool:
        yield from pool.map(_run, tasks)


_here: list[Any] = []


def _enter(work: Any, shared: Any) -> None:
    """Linear algebra on every core in every process would have them wait for each other."""
    _here[:] = [work, shared]
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # for what is loaded from here on
    with suppress(ImportError):
        import_module("threadpoolctl").threadpool_limits(1)  # for what is loaded already


def _run(task: Any) -> Any:
    work, shared = _here
    return work(shared, task)


def chance(share: float, draws: int) -> float:
    """That one of so many random configs is among the fastest `share` of all:
    `chance(0.05, 30) == 0.785…`"""
    return 1 - (1 - share) ** draws


def draws_for(share: float, confidence: float = 0.95) -> int:
    """How many it takes: `draws_for(0.05) == 59`."""
    return math.ceil(math.log(1 - confidence) / math.log(1 - share))


def fastest(case: Case, share: float) -> frozenset[int]:
    """The indices of the fastest `share` of all configs whose outcome is known, one at least; those
    that fail are the slowest and never among them."""
    table, workload = case.table, case.workload
    known = sum(table.status(workload, at) is not None for at in range(len(table.configs)))
    working = np.flatnonzero(~np.isnan(workload.medians))
    order = working[np.argsort(workload.medians[working], kind="stable")]
    return frozenset(int(at) for at in order[: max(1, round(share * known))])


def share_of_repeats(replayed: Replayed, wanted: frozenset[int], evals: int) -> float:
    """That had tried one of `wanted` after so many evaluations."""
    had = [not wanted.isdisjoint(course.evaluations[:evals]) for course in replayed.courses]
    return sum(had) / len(had)

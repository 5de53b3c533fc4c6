"""All that `whet pareto` simulates, and what it says about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.replay.frontier import Comparison, Frontier, compare
from whet.replay.lab import Case, Experiment, TableSource, replay
from whet.replay.pareto import Cloud, Draws, Paper
from whet.replay.racing import racing_clouds
from whet.replay.repetition import Array, Ints
from whet.replay.simulation import Course
from whet.replay.table import Table, TableWorkload
from whet.search import takes_prior

Done = Callable[[int, int], None]

# A race takes some milliseconds, the paper's simulation of the same run next to nothing.
RACED_DRAWS = 200


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

"""How near the best `auto` comes on recorded tables, in a size that every run of the tests can do.

The bounds are a few points below what is measured, so that only a clear loss shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from statistics import mean

import pytest

from whet.core.space import Space
from whet.replay import read_table, simulate
from whet.replay.lab import Case, cases_of
from whet.search import Strategy, make_strategy
from whet.search.auto import Auto

SEEDS = range(3)


@cache
def sizes() -> list[Case]:
    """Four sizes of a GEMM of 576 configs."""
    table = files("whet.replay") / "tables" / "h200-gemm-576.whet.json.gz"
    return cases_of("gemm", read_table(str(table)), workloads=4)


def searched(space: Space, seed: int) -> Strategy:
    return Auto(space, seed, whole=False)


def reached(make: Callable[[Space, int], Strategy], evals: int) -> float:
    """The mean fraction of the optimum."""
    found = []
    for case in sizes():
        optimum = case.workload.optimum
        assert optimum is not None
        for seed in SEEDS:
            strategy = make(case.space, seed)
            course = simulate(case.table, case.workload, strategy, evals, seed=seed)
            found.append(course.fraction(evals, optimum.ns))
    return mean(found)


@pytest.mark.slow
def test_auto_is_near_the_best_after_25_evaluations() -> None:
    assert reached(searched, 25) > 0.90


@pytest.mark.slow
def test_auto_leaves_a_random_search_far_behind() -> None:
    missed = 1 - reached(searched, 40)
    missed_at_random = 1 - reached(lambda space, seed: make_strategy("random", space, seed), 40)
    assert missed < missed_at_random / 2


@pytest.mark.slow
def test_what_other_sizes_teach_makes_the_first_ten_evaluations_count() -> None:
    taught = {id(case.space): case.with_sources(sizes()) for case in sizes()}
    with_prior = reached(lambda space, seed: taught[id(space)].strategy("auto", seed), 10)
    assert with_prior > reached(searched, 10) + 0.07


@pytest.mark.slow
def test_evolve_model_does_not_stay_in_the_region_that_it_settled_for_first() -> None:
    case = sizes()[-1]
    optimum = case.workload.optimum
    assert optimum is not None
    for seed in range(4):
        strategy = make_strategy("evolve-model", case.space, seed)
        course = simulate(case.table, case.workload, strategy, 80, seed=seed)
        assert course.fraction(80, optimum.ns) > 0.9

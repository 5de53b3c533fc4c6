"""The genetic algorithm: contract, progress, heredity."""

from __future__ import annotations

from search_landscapes import (
    bowl,
    bowl_space,
    mean_best,
    orders,
    orders_space,
    run,
    wide,
    wide_space,
)

from whet.core.config import Config
from whet.core.space import Space
from whet.search import Strategy
from whet.search.genetic import Genetic
from whet.search.random import Random
from whet.testing.strategy_kit import StrategyContract


class TestContract(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return Genetic(space, seed)


def test_it_needs_far_fewer_evaluations_than_chance() -> None:
    assert mean_best(Genetic, bowl_space(), bowl, 60) < 1.1
    assert mean_best(Random, bowl_space(), bowl, 60) > 1.15


def test_it_learns_the_order_of_a_permutation() -> None:
    space = orders_space()
    assert mean_best(Genetic, space, orders, 80) < mean_best(Random, space, orders, 80) - 0.1


def test_it_progresses_where_the_space_cannot_be_listed() -> None:
    space = wide_space()
    assert mean_best(Genetic, space, wide, 120) < mean_best(Random, space, wide, 120) - 0.5


def test_children_that_break_a_constraint_are_brought_to_the_nearest_that_does_not() -> None:
    space = Space({"a": list(range(32)), "b": list(range(32))}, ["(a + b) % 7 == 0"])
    asked = run(Genetic(space, 0), lambda config: 1000.0 + float(config["a"]), 60)  # type: ignore[arg-type]
    assert all(config in space for config in asked)
    assert 0 in [config["a"] for config in asked]


def test_it_keeps_away_from_where_configs_fail() -> None:
    def fails(config: Config) -> bool:
        return bool(config["flag"])

    asked = run(Genetic(bowl_space(), 0), bowl, 80, fails)
    assert sum(map(fails, asked[40:])) < 10

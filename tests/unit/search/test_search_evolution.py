"""Differential evolution: contract, progress, projection."""

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
from whet.search.evolution import Evolution
from whet.search.random import Random
from whet.testing.strategy_kit import StrategyContract


class TestContract(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return Evolution(space, seed)


def test_it_needs_far_fewer_evaluations_than_chance() -> None:
    assert mean_best(Evolution, bowl_space(), bowl, 60) < 1.1
    assert mean_best(Random, bowl_space(), bowl, 60) > 1.15


def test_it_learns_the_order_of_a_permutation() -> None:
    space = orders_space()
    assert mean_best(Evolution, space, orders, 80) < mean_best(Random, space, orders, 80) - 0.1


def test_it_progresses_where_the_space_cannot_be_listed() -> None:
    space = wide_space()
    assert mean_best(Evolution, space, wide, 120) < mean_best(Random, space, wide, 120) - 0.5


def test_it_keeps_away_from_where_configs_fail() -> None:
    def fails(config: Config) -> bool:
        return config["layout"] == "col"

    asked = run(Evolution(bowl_space(), 0), bowl, 80, fails)
    assert sum(map(fails, asked[40:])) < 10


def test_too_few_successes_to_differ_leave_it_searching() -> None:
    survivors = list(bowl_space())[::700]
    asked = run(Evolution(bowl_space(), 0), bowl, 60, lambda config: config not in survivors)
    assert len(set(asked)) == 60

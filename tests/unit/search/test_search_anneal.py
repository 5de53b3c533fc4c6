"""Simulated annealing: contract, progress, restarts."""

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

from whet.core.space import Space
from whet.search import Strategy
from whet.search.anneal import Anneal
from whet.search.random import Random
from whet.testing.strategy_kit import StrategyContract


class TestContract(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return Anneal(space, seed)


def test_it_needs_far_fewer_evaluations_than_chance() -> None:
    assert mean_best(Anneal, bowl_space(), bowl, 60) < 1.1
    assert mean_best(Random, bowl_space(), bowl, 60) > 1.15


def test_it_learns_the_order_of_a_permutation() -> None:
    space = orders_space()
    assert mean_best(Anneal, space, orders, 80) < mean_best(Random, space, orders, 80) - 0.1


def test_it_progresses_where_the_space_cannot_be_listed() -> None:
    space = wide_space()
    assert mean_best(Anneal, space, wide, 120) < mean_best(Random, space, wide, 120) - 0.5


def test_a_flat_landscape_ends_in_restarts_and_not_in_one_place() -> None:
    asked = run(Anneal(bowl_space(), 0), lambda config: 1000.0, 120)
    assert {config["x"] for config in asked} == set(range(16))

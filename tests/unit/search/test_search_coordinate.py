"""Coordinate descent: contract, descent, polish, restarts."""

from __future__ import annotations

import pytest
from search_landscapes import Rated, bowl, bowl_space, mean_best, outcome, run, wide, wide_space

from whet.core.config import Config
from whet.core.space import Space
from whet.search import Strategy
from whet.search.coordinate import Coordinate
from whet.search.unguided import Random
from whet.testing.strategy_kit import StrategyContract

BEST = Config(x=11, y=16, z=3, flag=True, layout="col")


class TestContract(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return Coordinate(space, seed)


@pytest.mark.medium
def test_it_starts_with_the_authors_first_config() -> None:
    space = bowl_space()
    assert Coordinate(space, 3).ask(1) == [space.first]


@pytest.mark.medium
def test_what_another_workload_found_best_is_tried_next() -> None:
    prior = Rated(bowl, unknown=lambda config: config["x"] == 11)
    strategy = Coordinate(bowl_space(), 3, transfer=prior)
    second = strategy.ask(2)[1]
    assert bowl(second) == min(bowl(one) for one in bowl_space() if one["x"] != 11)


@pytest.mark.medium
def test_it_descends_to_the_bottom_of_a_bowl() -> None:
    for seed in range(5):
        assert BEST in run(Coordinate(bowl_space(), seed), bowl, 80)


@pytest.mark.medium
def test_the_best_is_polished_in_every_parameter_before_it_moves_on() -> None:
    space = bowl_space()
    asked = run(Coordinate(space, 0), bowl, 100)
    found = asked.index(BEST) + 1
    polish = set(space.neighbours(BEST)) - set(asked[:found])
    assert len(polish) > 1
    assert set(asked[found : found + len(polish)]) == polish


def test_no_search_is_so_long_that_it_explores_for_the_sake_of_it() -> None:
    assert Coordinate.explore_every > 1e9


@pytest.mark.medium
def test_a_batch_has_neighbours_of_more_than_one_config() -> None:
    strategy = Coordinate(bowl_space(), 0)
    asked = run(strategy, bowl, 30)
    best = min(asked, key=bowl)
    around = [sum(one[name] != best[name] for name in one) == 1 for one in strategy.ask(8)]
    assert any(around)
    assert not all(around)


@pytest.mark.medium
def test_it_goes_on_before_it_is_told() -> None:
    strategy = Coordinate(bowl_space(), 0)
    waiting = strategy.ask(4)
    for _ in range(30):
        waiting += strategy.ask(1)
        strategy.tell([outcome(waiting.pop(0), bowl)])
    assert min(bowl(one) for one in strategy.ask(4)) < 1500


@pytest.mark.medium
def test_it_needs_far_fewer_evaluations_than_chance() -> None:
    assert mean_best(Coordinate, bowl_space(), bowl, 40) < 1.1
    assert mean_best(Random, bowl_space(), bowl, 40) > 1.2


@pytest.mark.slow
def test_it_descends_where_the_space_cannot_be_listed() -> None:
    space = wide_space()
    assert mean_best(Coordinate, space, wide, 120) < mean_best(Random, space, wide, 120) - 0.5

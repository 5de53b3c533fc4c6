"""The genetic algorithm: contract, progress, heredity."""

from __future__ import annotations

import pytest
from search_landscapes import ClassicSearch, bowl, bowl_space, run

from whet.core.config import Config
from whet.core.space import Space
from whet.search import Strategy
from whet.search.genetic import Genetic


class TestGenetic(ClassicSearch):
    def make(self, space: Space, seed: int) -> Strategy:
        return Genetic(space, seed)


def test_children_that_break_a_constraint_are_brought_to_the_nearest_that_does_not() -> None:
    space = Space({"a": list(range(32)), "b": list(range(32))}, ["(a + b) % 7 == 0"])
    asked = run(Genetic(space, 0), lambda config: 1000.0 + float(config["a"]), 60)  # type: ignore[arg-type]
    assert all(config in space for config in asked)
    assert 0 in [config["a"] for config in asked]


@pytest.mark.medium
def test_it_keeps_away_from_where_configs_fail() -> None:
    def fails(config: Config) -> bool:
        return bool(config["flag"])

    asked = run(Genetic(bowl_space(), 0), bowl, 80, fails)
    assert sum(map(fails, asked[40:])) < 10

"""Differential evolution: contract, progress, projection."""

from __future__ import annotations

import pytest
from search_landscapes import ClassicSearch, bowl, bowl_space, run

from whet.core.config import Config
from whet.core.space import Space
from whet.search import Strategy
from whet.search.evolution import Evolution


class TestEvolution(ClassicSearch):
    def make(self, space: Space, seed: int) -> Strategy:
        return Evolution(space, seed)


@pytest.mark.medium
def test_it_keeps_away_from_where_configs_fail() -> None:
    def fails(config: Config) -> bool:
        return config["layout"] == "col"

    asked = run(Evolution(bowl_space(), 0), bowl, 80, fails)
    assert sum(map(fails, asked[40:])) < 10


@pytest.mark.medium
def test_too_few_successes_to_differ_leave_it_searching() -> None:
    survivors = list(bowl_space())[::700]
    asked = run(Evolution(bowl_space(), 0), bowl, 60, lambda config: config not in survivors)
    assert len(set(asked)) == 60

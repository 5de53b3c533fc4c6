"""Simulated annealing: contract, progress, restarts."""

from __future__ import annotations

import pytest
from search_landscapes import ClassicSearch, bowl_space, run

from whet.core.space import Space
from whet.search import Strategy
from whet.search.anneal import Anneal


class TestAnneal(ClassicSearch):
    def make(self, space: Space, seed: int) -> Strategy:
        return Anneal(space, seed)


@pytest.mark.medium
def test_a_flat_landscape_ends_in_restarts_and_not_in_one_place() -> None:
    asked = run(Anneal(bowl_space(), 0), lambda config: 1000.0, 120)
    assert {config["x"] for config in asked} == set(range(16))

"""Every strategy, held to the contract."""

from __future__ import annotations

from whet.core.space import Space
from whet.search import Strategy, make_strategy
from whet.testing.strategy_kit import StrategyContract


class TestAuto(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("auto", space, seed)


class TestGrid(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("grid", space, seed)


class TestRandom(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("random", space, seed)

"""Every strategy, held to the contract."""

from __future__ import annotations

from whet.core.space import Space
from whet.search import Strategy, make_strategy
from whet.search.quick import Quick
from whet.testing.strategy_kit import StrategyContract


class TestAuto(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("auto", space, seed)


class TestQuick(StrategyContract):
    exhaustive = False

    def make(self, space: Space, seed: int) -> Strategy:
        return Quick(space, seed)


class TestGrid(StrategyContract):
    diverse = False

    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("grid", space, seed)


class TestRandom(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("random", space, seed)


class TestCoordinate(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("coordinate", space, seed)


class TestAnneal(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("anneal", space, seed)


class TestGenetic(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("genetic", space, seed)


class TestEvolution(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("evolution", space, seed)


class TestGaussianProcess(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("gp", space, seed)


class TestTpe(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("tpe", space, seed)


class TestForest(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("forest", space, seed)


class TestEvolveModel(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy("evolve-model", space, seed)

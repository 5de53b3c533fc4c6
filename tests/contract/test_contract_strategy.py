"""Every strategy, held to the contract."""

from __future__ import annotations

from whet.core.space import Space
from whet.core.status import Status
from whet.core.trial import Trial
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

    def test_it_copes_with_outcomes_that_never_come(self) -> None:
        """It waits for those it needs, but not for ever."""
        strategy = self.make(self.mixed(), 0)
        first = strategy.ask(24)
        assert 0 < len(first) <= 8
        assert strategy.ask(4) == []
        (more,) = strategy.ask(4)
        assert more not in first

    def test_it_takes_outcomes_in_another_order_than_it_asked(self) -> None:
        strategy = self.make(self.mixed(), 0)
        first, second = strategy.ask(3), strategy.ask(3)
        strategy.tell([Trial("w", config, Status.BUILD_ERROR) for config in reversed(second)])
        strategy.tell([Trial("w", config, Status.BUILD_ERROR) for config in reversed(first)])
        third = strategy.ask(3)
        assert len({*first, *second, *third}) == 9


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

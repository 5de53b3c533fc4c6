"""Every strategy, held to the contract."""

from __future__ import annotations

import pytest

from whet.core.space import Space
from whet.core.status import Status
from whet.core.trial import Trial
from whet.search import STRATEGIES, Strategy, make_strategy
from whet.search.quick import Quick
from whet.testing.strategy_kit import StrategyContract


class TestByName(StrategyContract):
    name = ""

    @pytest.fixture(autouse=True, params=STRATEGIES)
    def _named(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param
        self.diverse = self.name != "grid"

    def make(self, space: Space, seed: int) -> Strategy:
        return make_strategy(self.name, space, seed)


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

"""Contract tests for strategies, as a pytest class.

class TestMine(StrategyContract):
    def make(self, space, seed):
        return Mine(space, seed)
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest

from whet.core.config import Config
from whet.core.space import Categorical, Ordered, Permutation, Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.search import Strategy

FAILURES = tuple(status for status in Status if status.failed)


class StrategyContract:
    """Implement `make`; override `small` and `large` only if the strategy needs other spaces.

    Set `exhaustive = False` for a strategy that may stop before it has tried all of a small space,
    and `diverse = False` for one with a fixed order, whose proposals in one batch may be similar.
    """

    exhaustive = True
    diverse = True

    def make(self, space: Space, seed: int) -> Strategy:
        raise NotImplementedError

    def small(self) -> Space:
        """A space with constraints and fewer than a hundred configs."""
        return Space({"a": [1, 2, 4, 8], "b": [1, 2, 3, 4], "c": ["x", "y"]}, ["a % b == 0"])

    def large(self) -> Space:
        """A space that nobody can list."""
        return Space({f"p{i}": list(range(16)) for i in range(12)}, ["p0 != p1", "p2 <= p3"])

    def mixed(self) -> Space:
        """A space with every kind of parameter."""
        return Space(
            [
                Ordered("tile", (8, 16, 32, 64)),
                Categorical("layout", ("row", "col", "blocked")),
                Categorical("unroll", (True, False)),
                Permutation("loops", "mnk"),
                Ordered("stages", (1, 2, 3)),
            ],
            ["tile * stages <= 128", "unroll or stages == 1"],
        )

    def test_it_asks_for_every_config_of_a_small_space_once(self) -> None:
        space = self.small()
        asked = _drain(self.make(space, 0), step=3)
        assert len(asked) == len(set(asked))
        assert set(asked) <= set(space)
        if self.exhaustive:
            assert set(asked) == set(space)

    def test_once_exhausted_it_stays_so(self) -> None:
        strategy = self.make(self.small(), 0)
        _drain(strategy, step=7)
        assert strategy.ask(1) == []
        assert strategy.ask(10) == []

    def test_it_never_asks_for_more_than_it_is_asked_to(self) -> None:
        strategy = self.make(self.small(), 0)
        assert strategy.ask(0) == []
        for n in (1, 2, 5):
            asked = strategy.ask(n)
            assert 1 <= len(asked) <= n
            strategy.tell([_measured(config) for config in asked])

    def test_it_can_ask_again_before_it_is_told(self) -> None:
        strategy = self.make(self.small(), 0)
        first, second = strategy.ask(4), strategy.ask(4)
        assert first
        assert second
        assert not set(first) & set(second)

    @pytest.mark.parametrize("size", ["small", "large"])
    def test_the_same_seed_and_calls_give_the_same_configs(self, size: str) -> None:
        def asked(seed: int) -> list[Config]:
            space = self.small() if size == "small" else self.large()
            return _drain(self.make(space, seed), step=4, limit=24)

        assert asked(7) == asked(7)

    def test_it_neither_uses_nor_seeds_the_global_generators(self) -> None:
        space = self.large()
        outcomes = []
        for seed in (1, 2):
            random.seed(seed)
            np.random.seed(seed)
            before = _global_state()
            outcomes.append(_drain(self.make(space, 0), step=4, limit=12))
            assert _global_state() == before
        assert outcomes[0] == outcomes[1]

    def test_what_it_was_told_before_asking_is_not_asked_for(self) -> None:
        space = self.small()
        known = list(space)[::3]
        strategy = self.make(space, 0)
        strategy.tell([_measured(config) for config in known])
        asked = _drain(strategy, step=5)
        assert not set(asked) & set(known)
        if self.exhaustive:
            assert set(asked) | set(known) == set(space)

    def test_what_it_was_told_between_asking_is_not_asked_for(self) -> None:
        space = self.small()
        strategy = self.make(space, 0)
        asked = strategy.ask(2)
        known = [config for config in space if config not in asked][-4:]
        strategy.tell([_measured(config) for config in known])
        assert not set(_drain(strategy, step=5)) & {*known, *asked}

    def test_told_of_everything_it_asks_for_nothing(self) -> None:
        space = self.small()
        strategy = self.make(space, 0)
        strategy.tell([_measured(config) for config in space])
        assert strategy.ask(3) == []

    @pytest.mark.parametrize("status", FAILURES, ids=str)
    def test_it_goes_on_when_everything_fails(self, status: Status) -> None:
        strategy = self.make(self.small(), 0)
        asked: list[Config] = []
        for _ in range(4):
            batch = strategy.ask(3)
            asked += batch
            strategy.tell([_failed(config, status) for config in batch])
        assert len(asked) == len(set(asked)) >= 4

    def test_it_uses_up_a_space_where_everything_fails(self) -> None:
        space = self.small()
        asked = _drain(self.make(space, 0), step=4, outcome=_broken)
        assert len(asked) == len(set(asked))
        if self.exhaustive:
            assert set(asked) == set(space)

    def test_it_goes_on_where_nineteen_of_twenty_fail(self) -> None:
        space = Space({"a": list(range(12)), "b": list(range(12)), "c": [1, 2]})

        def outcome(config: Config) -> Trial:
            survives = int(config.id, 16) % 20 == 0
            return _measured(config) if survives else _broken(config)

        asked = _drain(self.make(space, 1), step=4, limit=48, outcome=outcome)
        assert len(asked) == len(set(asked)) == 48

    def test_it_goes_on_where_all_are_equally_fast(self) -> None:
        space = self.small()
        asked = _drain(self.make(space, 0), step=4, outcome=_constant)
        assert len(asked) == len(set(asked))
        if self.exhaustive:
            assert set(asked) == set(space)

    def test_it_copes_with_outcomes_that_never_come(self) -> None:
        strategy = self.make(self.mixed(), 0)
        asked: list[Config] = []
        for _ in range(6):
            batch = strategy.ask(4)
            asked += batch
            strategy.tell([_measured(config) for config in batch[::2]])
        assert len(asked) == len(set(asked)) == 24

    def test_it_takes_outcomes_in_another_order_than_it_asked(self) -> None:
        strategy = self.make(self.mixed(), 0)
        first, second = strategy.ask(5), strategy.ask(5)
        strategy.tell([_measured(config) for config in reversed(second)])
        strategy.tell([_measured(config) for config in reversed(first)])
        third = strategy.ask(5)
        assert len({*first, *second, *third}) == 15

    def test_what_it_asks_for_at_once_is_not_all_alike(self) -> None:
        if not self.diverse:
            pytest.skip("its order is given")
        strategy = self.make(self.mixed(), 0)
        _drain(strategy, step=4, limit=16)
        batch = strategy.ask(8)
        differing = [
            sum(one[name] != other[name] for name in one)
            for one, other in itertools.combinations(batch, 2)
        ]
        assert len(set(batch)) == 8
        assert sum(differing) / len(differing) >= 2

    def test_it_copes_with_every_kind_of_parameter_at_once(self) -> None:
        space = self.mixed()
        asked = _drain(self.make(space, 2), step=6, limit=36)
        assert len(asked) == len(set(asked)) == 36
        assert all(config in space for config in asked)

    def test_it_copes_with_configs_that_lack_a_parameter(self) -> None:
        space = Space([{"a": a} for a in (1, 2)] + [{"a": a, "b": b} for a in (1, 2) for b in "xy"])
        asked = _drain(self.make(space, 0), step=2)
        assert len(asked) == len(set(asked))
        assert set(asked) <= set(space)
        if self.exhaustive:
            assert set(asked) == set(space)

    def test_it_takes_a_later_outcome_of_the_same_config(self) -> None:
        strategy = self.make(self.small(), 0)
        (config,) = strategy.ask(1)
        trial = _measured(config)
        strategy.tell([trial])
        strategy.tell([trial.superseded_by(status=Status.OUTRACED)])
        assert config not in _drain(strategy, step=4)

    def test_it_copes_with_a_space_too_large_to_list(self) -> None:
        space = self.large()
        asked = _drain(self.make(space, 3), step=25, limit=100)
        assert len(asked) == len(set(asked)) == 100
        assert all(c["p0"] != c["p1"] and c["p2"] <= c["p3"] for c in asked)  # type: ignore[operator]

    def test_it_copes_with_a_single_config(self) -> None:
        space = Space([{"a": 1}])
        assert _drain(self.make(space, 0), step=4) == [Config(a=1)]

    def test_it_copes_with_two_configs(self) -> None:
        space = Space({"a": [1, 2]})
        asked = _drain(self.make(space, 0), step=1)
        assert len(asked) == len(set(asked))
        assert set(asked) <= set(space)
        if self.exhaustive:
            assert set(asked) == set(space)

    def test_it_prints_nothing(self, capfd: pytest.CaptureFixture[str]) -> None:
        _drain(self.make(self.small(), 0), step=4)
        assert capfd.readouterr() == ("", "")

    def test_it_has_a_name(self) -> None:
        assert self.make(self.small(), 0).name


def _global_state() -> tuple[object, ...]:
    numpy_state = np.random.get_state(legacy=False)["state"]
    return random.getstate(), numpy_state["pos"], numpy_state["key"].tobytes()


def _measured(config: Config) -> Trial:
    ns = 1000.0 + int(config.id, 16) % 997
    return Trial("workload", config, Status.OK, Timing((ns, ns * 1.01), timer="fake"))


def _constant(config: Config) -> Trial:
    return Trial("workload", config, Status.OK, Timing((1000.0, 1000.0), timer="fake"))


def _failed(config: Config, status: Status) -> Trial:
    return Trial("workload", config, status, error=f"{status}, says the kit")


def _broken(config: Config) -> Trial:
    return _failed(config, Status.BUILD_ERROR)


def _drain(
    strategy: Strategy,
    step: int,
    limit: int = 10_000,
    outcome: Callable[[Config], Trial] = _measured,
) -> list[Config]:
    """Asks and tells until nothing more comes."""
    asked: list[Config] = []
    while len(asked) < limit:
        batch = strategy.ask(min(step, limit - len(asked)))
        if not batch:
            break
        asked += batch
        strategy.tell([outcome(config) for config in batch])
    return asked

"""Picks on which merged stores disagree: who is sure of them, and how they are decided."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import whet
from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.run import Outcome
from whet.core.status import Status
from whet.engine import tune
from whet.store import MemoryStore, Pick, Store
from whet.testing.fake_target import FakeTarget

IDLE = {"a": 10.0, "b": 16.0, "c": 50.0}
BUSY = {"a": 40.0, "b": 30.0, "c": 80.0}


def machine(times: Mapping[str, float], *names: str) -> FakeTarget:
    """The same kernel on the same device, which has more or less else to do."""

    def micros(config: Config) -> float:
        return 1000.0 * times[config["x"]]

    return FakeTarget([{"x": name} for name in names or IDLE], micros)


def picked(store: Store) -> Pick:
    pick = store.pick(machine(IDLE).workload().id)
    assert pick is not None
    return pick


@pytest.fixture
def store() -> Store:
    """Tuned while the machine was idle; a store tuned while it was busy was merged in."""
    idle, busy = MemoryStore(), MemoryStore()
    assert tune(machine(IDLE), store=idle).config["x"] == "a"
    assert tune(machine(BUSY), store=busy).config["x"] == "b"
    idle.merge(busy)
    return idle


def test_choose_keeps_the_receivers_pick_and_is_not_sure_of_it(store: Store) -> None:
    choice = whet.choose(machine(IDLE), store=store, mode="cached")
    assert (choice.config["x"], choice.source) == ("a", "exact")
    assert choice.confidence == 0.5
    assert "contested" in choice.reason
    assert "[x=b]" in choice.reason


def test_a_stored_result_says_that_it_is_contested(store: Store) -> None:
    result = tune(machine(IDLE), store=store, mode="cached")
    assert result.config["x"] == "a"
    assert "[x=b]" in " ".join(result.notes)


@pytest.mark.parametrize(("now", "expected"), [(IDLE, "a"), (BUSY, "b")])
def test_the_next_tuning_measures_the_contested_picks_together_and_decides(
    store: Store, now: Mapping[str, float], expected: str
) -> None:
    target = machine(now)
    result = tune(target, store=store)
    assert result.source == "tuned"
    assert {config["x"] for config in target.looked} == {"a", "b"}
    assert {trial.config["x"] for trial in result.trials} == {"a", "b"}
    assert result.config["x"] == expected
    pick = picked(store)
    assert (pick.trial.config, pick.trial.timing) == (result.best.config, result.best.timing)
    assert not pick.rivals
    choice = whet.choose(target, store=store, mode="cached")
    assert (choice.config["x"], choice.confidence) == (expected, 1.0)
    assert tune(machine(now), store=store).source == "stored"


def test_a_contested_pick_that_fails_now_has_lost(store: Store) -> None:
    target = machine(IDLE)
    whole = target.times

    def times(config: Config) -> float:
        if config["x"] == "a":
            raise ConfigFailure(Status.RUN_ERROR, "it broke")
        return whole(config)

    target.times = times
    assert tune(target, store=store).config["x"] == "b"
    assert picked(store).rivals == ()


def test_a_tuning_without_the_time_for_both_decides_nothing(store: Store) -> None:
    before = picked(store)
    result = tune(machine(BUSY), store=store, budget=Budget(seconds=1e-6))
    assert result.run.outcome is Outcome.FINISHED
    assert result.config["x"] == "a"
    assert "nothing was" in " ".join(result.notes)
    assert picked(store) == before


def test_a_budget_of_one_trial_is_enough_to_decide(store: Store) -> None:
    assert tune(machine(BUSY), store=store, budget="1 trial").config["x"] == "b"
    assert picked(store).rivals == ()


def test_a_pick_that_the_space_no_longer_offers_does_not_contest(store: Store) -> None:
    target = machine(IDLE, "a", "c")
    choice = whet.choose(target, store=store, mode="cached")
    assert (choice.config["x"], choice.confidence) == ("a", 1.0)
    assert tune(target, store=store).source == "stored"


def test_where_only_the_other_stores_pick_is_offered_it_is_the_one() -> None:
    idle, busy = MemoryStore(), MemoryStore()
    tune(machine(IDLE), store=idle)
    tune(machine(BUSY), store=busy)
    idle.merge(busy)
    choice = whet.choose(machine(IDLE, "b", "c"), store=idle, mode="cached")
    assert (choice.config["x"], choice.source, choice.confidence) == ("b", "exact", 1.0)

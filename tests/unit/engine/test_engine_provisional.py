"""A duel that the budget cut: what is picked, that it is said, and that one can go on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import whet
from whet.core.budget import Budget
from whet.core.event import DuelStarted, Event
from whet.core.run import Result
from whet.core.status import Status
from whet.engine import tune
from whet.engine.recall import Knowledge
from whet.engine.steps.finals import NO_TIME, Duels
from whet.store import MemoryStore, Store
from whet.targets.function import FunctionTarget
from whet.testing.fake_target import FakeTarget
from whet.testing.fakes import NoiseModel


def sleeping(*times: float) -> FunctionTarget:
    def nap(t: float) -> None:
        time.sleep(t)

    return whet.function(nap, {"t": list(times)}, isolate=False)


def cut(store: Store, *times: float) -> Result:
    """At most five rounds fit in, and six could show something."""
    return tune(sleeping(*times), store=store, budget=Budget(seconds=8 * times[0]))


@pytest.fixture(autouse=True)
def _rounds_must_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However clear three of them are: how many fit in depends on the machine."""
    monkeypatch.setattr("whet.engine.steps.finals.SURE_PAIRS", 1000)


@pytest.mark.medium
def test_the_fast_one_is_picked_and_the_pick_is_provisional() -> None:
    result = cut(MemoryStore(), 0.2, 0.01)
    assert result.config["t"] == 0.01
    assert result.run.provisional
    assert result.to_json()["provisional"] is True
    assert "provisional" in str(result)
    assert not any("no significant difference" in note for note in result.notes)


@pytest.mark.slow
def test_a_further_tuning_goes_on_where_it_was_cut() -> None:
    store = MemoryStore()
    cut(store, 0.2, 0.01)
    further = tune(sleeping(0.2, 0.01), store=store, budget=Budget(seconds=30))
    assert (further.source, further.config["t"]) == ("tuned", 0.01)
    assert not further.run.provisional
    assert tune(sleeping(0.2, 0.01), store=store).source == "stored"


@pytest.mark.medium
def test_who_only_wants_something_to_use_has_the_provisional_pick_at_once() -> None:
    store = MemoryStore()
    first = cut(store, 0.2, 0.01)
    used = tune(sleeping(0.2, 0.01), store=store, budget=Budget(seconds=1.0), confirm=False)
    assert (used.source, used.config, used.run.provisional) == ("stored", first.config, True)


def test_without_a_budget_nothing_is_provisional() -> None:
    target = FakeTarget([{"t": 50}, {"t": 45}], lambda config: 1000.0 * config["t"])
    assert not tune(target, store=MemoryStore()).run.provisional


@pytest.mark.medium
def test_whoever_was_measured_may_still_win_against_a_provisional_pick() -> None:
    store = MemoryStore()
    result = tune(sleeping(0.1, 0.01, 0.011), store=store, budget=Budget(seconds=0.8))
    assert result.run.provisional
    known = Knowledge.recall(store, result.run.workload.id, sleeping(0.1, 0.01, 0.011).space, {})
    measured = {trial.config for trial in result.trials if trial.status.measured}
    assert {trial.config for trial in known.incumbents} == measured != {result.config}
    assert known.incumbents[0].config == result.config


@pytest.mark.medium
@pytest.mark.parametrize("budget_s", [0.25, 0.5])
def test_a_budget_that_is_shorter_than_the_first_look_still_has_a_result(budget_s: float) -> None:
    result = tune(sleeping(0.2, 0.19), store=MemoryStore(), budget=Budget(seconds=budget_s))
    assert result.best.median_ns is not None


def test_a_noisy_machine_is_named_with_a_figure() -> None:
    noise = NoiseModel(gaussian=0.4)
    target = FakeTarget([{"t": t} for t in range(50, 90)], lambda c: 1000.0 * c["t"], noise=noise)
    result = tune(target, store=MemoryStore())
    (said,) = [note for note in result.notes if "as if other work" in note]
    assert said.startswith("times of the same config vary by ")
    percent = float(said.removeprefix("times of the same config vary by ").split()[0])
    assert 15 < percent < 100


def test_a_quiet_machine_is_not() -> None:
    target = FakeTarget(
        [{"t": t} for t in range(50, 90)],
        lambda c: 1000.0 * c["t"],
        noise=NoiseModel(gaussian=0.01),
    )
    assert not any("as if other work" in note for note in tune(target, store=MemoryStore()).notes)


@pytest.mark.medium
def test_what_is_slow_and_quiet_may_be_called_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def train(n: int) -> int:
        with calls.open("a") as file:
            file.write(f"{n} ")
        time.sleep(0.01 * n)
        return n

    target = whet.function(
        train, {"n": [3, 1, 2]}, timer="once", check=lambda found, config: found == config["n"]
    )
    result = tune(target, store=MemoryStore())
    assert result.config["n"] == 1
    assert sorted(calls.read_text().split()) == ["1", "2", "3"]
    assert result.best.timing is not None
    assert result.best.timing.timer == "once"


def test_finalists_that_there_is_no_time_for_take_no_part_in_the_duel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Duels, "_affordable", lambda self, finalists, default: finalists[:3])
    events: list[Event] = []
    target = FakeTarget([{"t": t} for t in (50.0, 50.1, 50.2, 50.3)], lambda c: 1000.0 * c["t"])
    result = tune(target, store=MemoryStore(), on_event=events.append)
    assert max(len(event.rivals) for event in events if isinstance(event, DuelStarted)) == 3
    assert result.run.provisional
    (left_out,) = [trial for trial in result.trials if trial.error == NO_TIME]
    assert left_out.status is Status.OUTRACED

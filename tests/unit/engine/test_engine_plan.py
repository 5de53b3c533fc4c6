"""How the samples are spent: the race, a fixed number, and warm-ups that say enough."""

from __future__ import annotations

from typing import Any

from whet.core.run import Result
from whet.core.status import Status
from whet.engine import tune
from whet.engine.plan import Plan
from whet.engine.settings import Settings
from whet.measure.racing.race import RacePolicy
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget
from whet.testing.fakes import NoiseModel


def micros(config: Any) -> float:
    return float(1_000_000 * config["t"])


def fake(times: list[int], noise: NoiseModel | None = None) -> FakeTarget:
    return FakeTarget([{"t": t} for t in times], micros, noise=noise)


def samples(result: Result) -> dict[Any, int]:
    return {t.config["t"]: len(t.timing.samples) for t in result.trials if t.timing is not None}


def test_a_config_whose_warm_up_is_hopeless_gets_no_sample() -> None:
    result = tune(fake([1, 3, 100]), store=":memory:", search="grid")
    hopeless = next(trial for trial in result.trials if trial.config["t"] == 100)
    assert hopeless.status is Status.OUTRACED
    assert hopeless.timing is not None
    assert hopeless.timing.quality == "contaminated"
    assert "warm-up" in hopeless.error
    assert samples(result)[100] == 1
    assert samples(result)[3] > 1


def test_how_hopeless_a_warm_up_must_be_is_the_policys_to_say() -> None:
    strict = Plan(race=RacePolicy(hopeless_warm_up=1.5, warm_up_slack_ns=0.0))
    result = tune(fake([1, 3, 100]), store=":memory:", search="grid", plan=strict)
    assert samples(result)[3] == 1


def test_the_first_config_is_sampled_however_slow_it_is() -> None:
    result = tune(fake([100, 1]), store=":memory:", search="grid")
    assert samples(result)[100] > 1


def test_a_fixed_plan_samples_everything_alike() -> None:
    result = tune(fake([1, 3, 100]), store=":memory:", plan=Plan.fixed(7))
    assert samples(result) == {1: 7, 3: 7, 100: 7}


def test_settings_can_ask_for_a_fixed_number_of_samples() -> None:
    result = tune(fake([1, 3, 100]), store=":memory:", settings=Settings(samples=10))
    assert samples(result) == {1: 10, 3: 10, 100: 10}


def test_what_a_race_has_seen_too_little_of_is_measured_again_for_a_fixed_plan() -> None:
    store, target = MemoryStore(), fake([1, 3, 100])
    tune(target, store=store)
    result = tune(target, store=store, settings=Settings(samples=40))
    assert samples(result) == {1: 40, 3: 40, 100: 40}
    assert tune(target, store=store, settings=Settings(samples=40)).source == "stored"

"""A run that compares bits: what it compares with, who may win, and what it says of the price."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from whet.builds.job import Built, Job
from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.run import Result
from whet.core.status import Status
from whet.engine import tune
from whet.measure.bench.bits import BITS, FREE_NS, REAL, VARIES, WIDE, BitCheck
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget

SLOW, OTHER, SAME, NEXT = Config(t=30), Config(t=10), Config(t=20), Config(t=25)


def written(config: Config) -> Mapping[str, Value]:
    """As though the config with the shortest time added in another order."""
    bits = "other" if config == OTHER else "same"
    return {BITS: ((REAL, "c", "zeros"), (WIDE, "c", bits))}


def build(config_id: str, seconds: float) -> Built:
    time.sleep(seconds)
    return Built(config_id)


def fail() -> Built:
    raise ConfigFailure(Status.BUILD_ERROR, "no such instruction")


class Checked(FakeTarget):
    """The author's first config takes the longest to build."""

    def __init__(self, check: BitCheck | None, facts: Any = written, configs: Any = None) -> None:
        some = configs or (SLOW, OTHER, SAME)
        super().__init__(
            [dict(one) for one in some],
            lambda config: 1000.0 * float(str(config["t"])),
            facts=facts,
            building=True,
            shares_host=False,
        )
        self.bit_check = check

    def job(self, config: Config) -> Job | None:
        self.built.append(config)
        return Job(build, (config.id, 0.5 if config == self.space.first else 0.0))


def statuses(result: Result) -> dict[Config, Status]:
    return {trial.config: trial.status for trial in result.trials}


@pytest.mark.medium
def test_the_authors_first_is_the_reference_though_it_is_built_last() -> None:
    target = Checked("bitwise")
    result = tune(target, store=MemoryStore(), jobs=3)
    assert target.looked[0] == SLOW
    assert result.config == SAME
    assert statuses(result)[OTHER] is Status.WRONG_RESULT


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 3])
def test_where_the_authors_first_does_not_run_the_next_of_the_list_is_the_reference(jobs) -> None:
    class Unbuildable(Checked):
        def job(self, config: Config) -> Job | None:
            if config == SLOW:
                return Job(fail, ())
            return Job(build, (config.id, 0.5 if config == NEXT else 0.0))

    some = (SLOW, NEXT, OTHER, *(Config(t=number) for number in range(40, 52)))
    for seed in range(3):
        target = Unbuildable("bitwise", configs=some)
        result = tune(target, store=MemoryStore(), jobs=jobs, seed=seed)
        assert target.looked[0] == NEXT
        assert statuses(result)[SLOW] is Status.BUILD_ERROR
        assert statuses(result)[OTHER] is Status.WRONG_RESULT
        assert result.config == NEXT


@pytest.mark.medium
def test_a_budget_that_reaches_no_further_takes_what_there_is_as_the_reference() -> None:
    class Unbuildable(Checked):
        def job(self, config: Config) -> Job | None:
            return Job(fail, ()) if config == SLOW else Job(build, (config.id, 0.0))

    target = Unbuildable("bitwise", configs=(SLOW, NEXT, OTHER))
    result = tune(target, store=MemoryStore(), budget="2 trials")
    assert len(result.trials) == 2
    assert result.config == target.looked[0]


@pytest.mark.medium
def test_without_a_check_the_fastest_wins() -> None:
    assert tune(Checked(None), store=MemoryStore()).config == OTHER


@pytest.mark.medium
def test_a_refused_config_keeps_its_time_and_the_price_is_said() -> None:
    result = tune(Checked("bitwise"), store=MemoryStore())
    [refused] = [trial for trial in result.trials if trial.config == OTHER]
    assert refused.timing is None
    assert 9_000 < float(str(refused.facts[FREE_NS])) < 11_000
    [said] = [note for note in result.notes if note.startswith("check=bitwise")]
    assert "refused 1 config" in said
    assert "[t=10]" in said
    assert "2 times" in said


@pytest.mark.medium
def test_a_check_that_costs_nothing_says_so() -> None:
    result = tune(Checked("bitwise", configs=(OTHER, SLOW, SAME)), store=MemoryStore())
    assert result.config == OTHER
    assert any("check=bitwise refused 2 configs, none" in note for note in result.notes)
    alike = Checked("bitwise", facts=lambda config: {BITS: ((REAL, "c", "0"),)})
    notes = tune(alike, store=MemoryStore()).notes
    assert any("check=bitwise refused no" in note for note in notes)


@pytest.mark.medium
def test_a_later_run_compares_with_what_an_earlier_one_measured() -> None:
    store = MemoryStore()
    tune(Checked("bitwise", configs=(SLOW, SAME)), store=store)
    later = Checked("bitwise")
    result = tune(later, store=store)
    assert SLOW not in later.looked[:1]
    assert result.config == SAME
    assert statuses(result)[OTHER] is Status.WRONG_RESULT


@pytest.mark.medium
def test_deterministic_lets_any_order_win_that_repeats_itself() -> None:
    def varying(config: Config) -> Mapping[str, Value]:
        return {**written(config), **({VARIES: "launch 2"} if config == OTHER else {})}

    assert tune(Checked("deterministic"), store=MemoryStore()).config == OTHER
    result = tune(Checked("deterministic", facts=varying), store=MemoryStore())
    assert result.config == SAME
    assert statuses(result)[OTHER] is Status.WRONG_RESULT

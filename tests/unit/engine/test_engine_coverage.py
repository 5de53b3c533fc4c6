"""A result says how much of the space was tried, and why no more was."""

from __future__ import annotations

import logging
import time

import pytest

from whet.builds.job import Job
from whet.core.config import Config
from whet.core.errors import TuningFailedError
from whet.core.event import TrialFinished
from whet.core.run import Stop
from whet.core.space import Space
from whet.engine import Interrupted, tune
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget


def fake(size: int = 12) -> FakeTarget:
    return FakeTarget({"t": list(range(1, size + 1))}, lambda config: 1000.0 * config["t"])


def covered(result):
    found = result.run.coverage
    return found.tried, found.size, found.stopped


def test_a_space_that_was_tried_whole_is_complete() -> None:
    assert covered(tune(fake(), store=MemoryStore())) == (12, 12, Stop.COMPLETE)


def test_a_budget_that_reaches_exactly_to_the_end_completes_the_space() -> None:
    assert covered(tune(fake(), store=MemoryStore(), budget="12trials"))[2] is Stop.COMPLETE


def test_a_budget_of_trials_ends_it() -> None:
    assert covered(tune(fake(), store=MemoryStore(), budget="5trials")) == (5, 12, Stop.TRIALS)


@pytest.mark.medium
def test_a_budget_of_time_ends_it() -> None:
    space = Space({"t": list(range(1, 300)), "u": list(range(300))})
    target = FakeTarget(space, lambda config: 1000.0 * config["t"])
    result = tune(target, store=MemoryStore(), search="random", budget="1s")
    tried, size, stopped = covered(result)
    assert (size, stopped) == (299 * 300, Stop.TIME)
    assert 0 < tried < size


@pytest.mark.medium
def test_a_budget_that_ends_before_the_first_build_is_said_to() -> None:
    class Long(FakeTarget):
        def job(self, config: Config) -> Job:
            return Job(time.sleep, (30,))

    with pytest.raises(TuningFailedError) as caught:
        tune(Long({"t": [1, 2]}, lambda config: 1e3), store=MemoryStore(), budget="0.3s")
    assert "config of 'fake'" in str(caught.value)
    assert "budget of 0.3 s" in str(caught.value)
    assert str(caught.value).endswith("increase it")


@pytest.mark.medium
def test_what_earlier_runs_tried_counts() -> None:
    store = MemoryStore()
    tune(fake(), store=store, budget="5trials")
    more = tune(fake(), store=store, budget="6trials")
    assert covered(more) == (11, 12, Stop.TRIALS)
    assert covered(tune(fake(), store=store, budget="7trials")) == (12, 12, Stop.COMPLETE)


@pytest.mark.medium
def test_the_budget_it_names_goes_on_where_it_stopped() -> None:
    store = MemoryStore()
    first = tune(fake(), store=store, budget="5trials")
    more = tune(fake(), store=store, budget=first.run.coverage.next_budget)
    assert more.source == "tuned"
    assert more.run.tried > first.run.tried


def test_an_answer_from_the_store_says_how_far_the_run_before_came() -> None:
    store = MemoryStore()
    tune(fake(), store=store, budget="5trials")
    again = tune(fake(), store=store, budget="3trials")
    assert again.source == "stored"
    assert covered(again) == (5, 12, Stop.TRIALS)
    assert again.run.coverage.next_option == "--budget 7trials"


class _Satisfied:
    """Asks for three configs and no more."""

    name = "satisfied"

    def __init__(self, space: Space) -> None:
        self._left = list(space)[:3]

    def ask(self, n: int) -> list[Config]:
        asked, self._left = self._left[:n], self._left[n:]
        return asked

    def tell(self, trials: object) -> None:
        pass


def test_a_search_that_asks_for_no_more_ends_it() -> None:
    target = fake()
    result = tune(target, store=MemoryStore(), search=_Satisfied(target.space))
    assert covered(result) == (3, 12, Stop.SEARCH)


def test_ctrl_c_ends_it_and_is_stored_as_the_reason() -> None:
    store, seen = MemoryStore(), []

    def press_ctrl_c(event: object) -> None:
        if isinstance(event, TrialFinished):
            seen.append(event)
            if len(seen) == 4:
                raise KeyboardInterrupt

    target = fake()
    with pytest.raises(Interrupted) as caught:
        tune(target, store=store, on_event=press_ctrl_c)
    assert caught.value.result is not None
    tried, size, stopped = covered(caught.value.result)
    assert (size, stopped) == (12, Stop.INTERRUPTED)
    assert 4 <= tried < 12
    (run,) = store.runs(target.workload().id)
    assert (run.tried, run.stopped) == (tried, stopped)


@pytest.mark.medium
def test_a_space_too_large_to_list_is_not_listed_for_it() -> None:
    space = Space({f"p{n}": list(range(64)) for n in range(12)})
    target = FakeTarget(space, lambda config: 1000.0 + config["p0"])
    assert covered(tune(target, store=MemoryStore(), budget="4trials")) == (4, 64**12, Stop.TRIALS)


def test_the_log_line_says_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="whet"):
        tune(fake(), store=MemoryStore(), budget="5trials")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "of 5 tried" in line
    assert line.endswith("tried=5/12 stopped=trials")


def test_a_config_that_was_known_before_is_reported_as_such() -> None:
    store, news = MemoryStore(), []
    tune(fake(3), store=store)
    more = FakeTarget({"t": [1, 2, 3, 0.99]}, lambda config: 1000.0 * config["t"])
    tune(more, store=store, on_event=news.append)
    new = {e.trial.config["t"] for e in news if isinstance(e, TrialFinished) and not e.known}
    assert new == {0.99}

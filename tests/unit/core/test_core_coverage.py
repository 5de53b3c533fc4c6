"""How much of a space was tried, why no more, and what would go on, in words."""

from __future__ import annotations

import pytest

from whet.core.budget import Budget
from whet.core.errors import at_command_line
from whet.core.run import Coverage, Outcome, Run, Stop
from whet.testing.samples import a_run, a_workload


def after(stopped: Stop | None, budget: str = "none", tried: int = 62, size: int | None = 132):
    return Coverage(tried, size, stopped, Budget.parse(budget))


def test_a_spent_budget_is_named_with_one_that_goes_on() -> None:
    trials, time = str(after(Stop.TRIALS, "50trials")), str(after(Stop.TIME, "30s"))
    assert trials.startswith("62 of 132 configs tried: ")
    assert "50 trials" in trials
    assert trials.endswith(' budget="70trials"')
    assert "30 s" in time
    assert time.endswith(' budget="1m"')


def test_at_the_command_line_the_same_is_an_option() -> None:
    with at_command_line():
        assert after(Stop.TRIALS, "50trials").next_text.endswith(" --budget 70trials")
        assert after(Stop.SEARCH).next_text.endswith(" --search grid")
    assert after(Stop.SEARCH).next_text.endswith(' search="grid"')


@pytest.mark.parametrize(
    ("stopped", "budget", "more"),
    [
        (Stop.TRIALS, "30trials", "--budget 60trials"),
        (Stop.TRIALS, "100trials", "--budget 101trials"),
        (Stop.TRIALS, "1h,20trials", "--budget 1h,40trials"),
        (Stop.TIME, "90s,500trials", "--budget 3m,500trials"),
        (Stop.SEARCH, "none", "--search grid"),
        (Stop.INTERRUPTED, "30s", ""),
        (Stop.COMPLETE, "30s", ""),
    ],
)
def test_what_goes_on_exceeds_what_was_spent_but_not_what_is_left(
    stopped: Stop, budget: str, more: str
) -> None:
    found = after(stopped, budget)
    assert found.next_option == more
    if found.next_budget is not None:
        assert not Budget.parse(budget).covers(found.next_budget)


def test_a_whole_space_needs_no_more_words() -> None:
    assert str(after(Stop.COMPLETE, tried=132)) == "132 of 132 configs tried"


def test_a_pick_that_was_not_confirmed_is_said_to_be_provisional() -> None:
    whole = Coverage(2, 2, Stop.COMPLETE, Budget(), provisional=True)
    tried, provisional, remedy = whole.lines
    assert "2 of 2" in tried
    assert "provisional" in provisional
    assert "tune again" in remedy
    assert whole.to_json()["provisional"] is True
    cut = Coverage(1, 2, Stop.TIME, Budget(seconds=2.0), provisional=True)
    assert cut.lines[-1].endswith(' budget="4s"')


def test_a_run_says_whether_its_pick_is_provisional_and_older_ones_are_not() -> None:
    run = a_run(a_workload(), provisional=True)
    assert Run.from_json(run.to_json()).provisional
    older = run.to_json()
    del older["provisional"]
    assert not Run.from_json(older).provisional


def test_a_space_that_cannot_be_counted_says_so() -> None:
    found = after(Stop.TRIALS, "50trials", size=None)
    assert str(found).startswith("62 of a very large number of configs tried")
    assert found.next_option == "--budget 100trials"


@pytest.mark.parametrize("stopped", Stop)
def test_every_reason_but_completion_says_why_and_what_goes_on(stopped: Stop) -> None:
    found = after(stopped, "30s,50trials")
    assert bool(found.reason) == bool(found.next_text) == (stopped is not Stop.COMPLETE)


def test_a_run_keeps_why_it_stopped() -> None:
    run = a_run(a_workload(), tried=4, stopped=Stop.TRIALS)
    assert Run.from_json(run.to_json()) == run


@pytest.mark.parametrize(
    ("changes", "stopped"),
    [
        ({"exhaustive": True}, Stop.COMPLETE),
        ({"budget": Budget(trials=6)}, Stop.TRIALS),
        ({"budget": Budget(seconds=30.0)}, Stop.TIME),
        ({"budget": Budget(seconds=30.0, trials=6)}, Stop.TRIALS),
        ({"budget": Budget(seconds=30.0, trials=7)}, Stop.TIME),
        ({"outcome": Outcome.INTERRUPTED}, Stop.INTERRUPTED),
        ({"outcome": Outcome.RUNNING}, None),
        ({}, None),
    ],
)
def test_of_a_run_that_an_older_whet_wrote_the_reason_is_inferred(changes, stopped) -> None:
    data = a_run(a_workload(), **changes).to_json()
    del data["stopped"], data["tried"]
    read = Run.from_json(data)
    assert (read.stopped, read.tried, read.coverage) == (stopped, None, None)


def test_a_reason_that_only_a_newer_whet_knows_is_read_as_none() -> None:
    data = {**a_run(a_workload()).to_json(), "stopped": "boredom"}
    assert Run.from_json(data).stopped is None


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        ("200trials", "200 trials"),
        ("1trial", "1 trial"),
        ("5m,2000trials", "5 min or 2,000 trials"),
    ],
)
def test_a_budget_in_a_sentence_has_its_spaces(budget: str, text: str) -> None:
    assert Budget.parse(budget).text == text

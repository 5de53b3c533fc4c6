"""Wherever a tuning is told of: how much of the space was tried, why no more, what goes on."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from cli_runs import Whet
from whet.cli.terminal.live import frame
from whet.cli.terminal.progress import PlainProgress
from whet.cli.terminal.tally import Tally
from whet.core.budget import Budget
from whet.core.errors import at_command_line
from whet.core.event import RunFinished, RunStarted, TrialFinished
from whet.core.run import Outcome, Result, Stop
from whet.store import open_store
from whet.testing.samples import a_run, a_trial, a_workload

KERNEL = """
import whet
space = {"a": list(range(12)), "b": list(range(11))}
t = whet.function(lambda a, b: None, space, name="t", isolate=False)
"""
STOPPED = "5 of 132 configs tried: budget of 5 trials used up"
NEXT = "continue with --budget 10trials"
RUN = a_run(a_workload(), {"BM": 1}, space_size=132, tried=5, budget=Budget(trials=5))
ENDED = a_run(
    a_workload(), {"BM": 1}, space_size=132, tried=5, budget=Budget(trials=5), stopped=Stop.TRIALS
)


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.medium
def test_the_summary_best_trials_and_json_say_it(whet: Whet) -> None:
    Path("kernel.py").write_text(KERNEL)
    arguments = ("tune", "kernel.py:t", "--budget", "5trials", "--store", "s.db", "-q")
    tuned, again = whet(*arguments), whet(*arguments)
    asked = [whet(*name, "t", "--store", "s.db") for name in (["best"], ["show", "trials"])]

    for ran in (tuned, again, *asked):
        assert STOPPED in words(ran.out)
        assert NEXT in ran.out
        assert ran.widest <= 80
    expected = {
        "tried": 5,
        "size": 132,
        "stopped": "trials",
        "reason": "budget of 5 trials used up",
        "next": "--budget 10trials",
        "provisional": False,
    }
    results = [json.loads(whet(*arguments, "--json").out)["coverage"]]
    results += [
        json.loads(whet("best", "t", "--store", "s.db", "--json").out)["best"][0]["coverage"]
    ]
    found = json.loads(whet("show", "trials", "t", "--store", "s.db", "--json").out)
    results += [found["workloads"][0]["coverage"]]
    assert results == [expected] * 3


def test_many_workloads_have_it_in_a_column(whet: Whet) -> None:
    with open_store("s.db") as store:
        for kernel in ("one", "two"):
            workload = a_workload(kernel=kernel)
            store.save_run(a_run(workload, {"BM": 1}, space_size=65_536, tried=357))
            store.append([a_trial(workload, {"BM": 1})])
    head, *rows = whet("best", "--store", "s.db").out.splitlines()
    assert "tried" in head
    assert all("357/65,536" in row for row in rows)


def test_a_run_that_was_killed_is_not_taken_for_a_finished_one(whet: Whet) -> None:
    workload = a_workload()
    with open_store("s.db") as store:
        store.save_run(a_run(workload, outcome=Outcome.RUNNING))
        store.append([a_trial(workload, {"BM": n}) for n in range(2)])
    said = whet("show", "trials", "matmul", "--store", "s.db").out
    assert "2 of 6 configs tried" in said
    assert "was killed\ntune again" in said


def test_progress_says_it_at_the_end_and_the_live_display_all_along() -> None:
    stream, tally = io.StringIO(), Tally()
    trial = a_trial(RUN.workload, {"BM": 1})
    events = [
        RunStarted(RUN, 5, known=3),
        TrialFinished(a_trial(RUN.workload, {"BM": 7}), known=True),
        TrialFinished(trial),
        RunFinished(Result(ENDED, trial, None, (trial,))),
    ]
    plain = PlainProgress(stream)
    with at_command_line():
        for event in events:
            plain(event)
            tally.add(event)
    assert "5 of 132 configs" in stream.getvalue()
    assert "(3 known), budget 5 trials" in stream.getvalue()
    assert STOPPED in words(stream.getvalue())
    assert NEXT in stream.getvalue()
    assert "trials  4 of 132 · 2 ok" in "\n".join(line.plain for line in frame(tally, 80))


@pytest.mark.parametrize("search", ["auto", "grid", "evolve-model"])
def test_the_help_of_tune_names_the_strategies(whet: Whet, search: str) -> None:
    assert search in whet("tune", "--help").out.partition("--search")[2].partition("--l2")[0]

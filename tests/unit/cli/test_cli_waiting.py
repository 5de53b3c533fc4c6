"""Another process tunes the same: what a person reads of it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet
from whet.cli.arguments.locate import locate
from whet.cli.terminal.live import frame
from whet.cli.terminal.progress import PlainProgress
from whet.cli.terminal.summary import summary
from whet.cli.terminal.tally import Tally
from whet.core.budget import Budget
from whet.core.event import Event, RunFinished, RunStarted, Waited, Waiting
from whet.core.frozen import FrozenMap
from whet.core.process import Holder
from whet.core.run import Outcome, Result
from whet.core.trial import Cost
from whet.engine.target import Target
from whet.engine.turns import Turn
from whet.store import open_store
from whet.testing.samples import a_run, a_trial, a_workload

WORKLOAD = a_workload()
RUN = a_run(WORKLOAD, {"BM": 2}, budget=Budget(5.0))
WAITING = Waiting(RUN, Holder(4711), 5.0)
WHO = "another process is already tuning this (pid 4711)"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def said(*events: Event) -> str:
    stream = io.StringIO()
    progress = PlainProgress(stream, None, Clock())
    for event in events:
        progress(event)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    return " ".join(line[9:].strip() for line in lines)


def waited(wall: dict[str, float], **changes: Any) -> Result:
    run = replace(
        RUN,
        outcome=Outcome.INTERRUPTED,
        cost=Cost(FrozenMap(), FrozenMap(wall)),
        wall_s=sum(wall.values()),
    )
    notes = ("budget spent waiting for pid 4711, which is still tuning this",)
    result = Result(run, a_trial(WORKLOAD, {"BM": 2}), None, (), known=7, source="waited")
    return replace(result, notes=notes, **changes)


def test_progress_says_whom_it_waits_for_and_how_long_that_took() -> None:
    assert said(WAITING).startswith(f"{WHO}; ")
    assert said(WAITING).endswith("5.00 s")
    assert said(WAITING, Waited(10.0, 13.2)).endswith("waited 3.20 s")


def test_progress_claims_no_trials_of_a_run_that_only_waited() -> None:
    assert "trials" not in said(WAITING, RunFinished(waited({"queue": 5.0})))


def test_the_live_display_says_whom_it_waits_for() -> None:
    tally = Tally(clock=Clock())
    tally.add(WAITING)
    lines = [line.plain for line in frame(tally, 80)]
    assert lines[0] == str(WORKLOAD)
    assert f"phase   {WHO}; waiting" in lines


def test_the_live_display_counts_the_wait_into_the_budget() -> None:
    clock = Clock()
    tally = Tally(clock=clock)
    tally.add(WAITING)
    clock.now += 3.0
    tally.add(RunStarted(RUN, 4, 0))
    assert tally.seconds_left == 2.0


def test_a_summary_says_that_the_budget_was_spent_waiting() -> None:
    lines = summary(waited({"queue": 4.9, "idle": 0.1}), "/data/store.db")
    text = "\n".join(lines)
    assert any(line.startswith("not finished:") for line in lines)
    assert "waiting for pid 4711" in text
    assert "7 already known" in text
    assert any(line.startswith("  waiting for others") and "98.0%" in line for line in lines)


def test_a_summary_of_an_answer_that_was_waited_for_shows_the_wait() -> None:
    text = "\n".join(summary(waited({"queue": 9.0, "idle": 1.0}, source="stored"), "/data/s.db"))
    assert "answered from" in text
    assert "others        9.00 s   90.0%" in text


@pytest.mark.parametrize("queue", [{"queue": 3.0}, {}])
def test_cost_has_a_bar_for_it_where_there_was_a_wait(
    whet: Whet, tmp_path: Path, queue: dict[str, float]
) -> None:
    """A store of 0.1 has no such phase."""
    wall = FrozenMap({"measure": 1.0, "waiting": 2.0, **queue, "idle": 0.5})
    with open_store(tmp_path / "s.db") as store:
        run = replace(RUN, cost=Cost(FrozenMap(), wall), wall_s=sum(wall.values()), trials=1)
        store.save_run(run)
        store.append([a_trial(WORKLOAD, {"BM": 2}, run_id=run.id, created=run.started)])
    out = whet("show", "cost", "--store", str(tmp_path / "s.db")).out
    assert ("others        3.00 s" in out) == bool(queue)
    assert whet("show", "cost", "--store", str(tmp_path / "s.db"), "--json").code == 0


KERNEL = """
import whet

def nap(n):
    return n

naps = whet.function(nap, {"n": [3, 1, 2]}, key={})
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[None]:
    """This process has the turn to tune `naps` for the store `s.db`."""
    (tmp_path / "naps.py").write_text(KERNEL)
    target = locate("naps.py:naps")
    assert isinstance(target, Target)
    with open_store(tmp_path / "s.db") as store, Turn(store, target.workload().id) as turn:
        assert turn.take()
        yield


def tune_elsewhere(*options: str) -> subprocess.CompletedProcess[str]:
    command = "import sys; from whet.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", command, "tune", "naps.py", "--store", "s.db", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.usefixtures("held")
class TestTheCommand:
    @pytest.mark.medium
    def test_ends_with_its_budget_and_says_on_what_it_was_spent(self) -> None:
        done = tune_elsewhere("--budget", "1s")
        told, page = " ".join(done.stderr.split()), " ".join(done.stdout.split())
        assert done.returncode == 0
        assert f"pid {os.getpid()}" in told
        assert f"waiting for pid {os.getpid()}" in page
        assert "n=3 not measured" in page
        assert max(map(len, done.stderr.splitlines())) <= 80

    @pytest.mark.medium
    def test_says_so_in_json(self) -> None:
        done = tune_elsewhere("--budget", "1s", "--json", "--quiet")
        found = json.loads(done.stdout)
        assert (found["source"], found["outcome"]) == ("waited", "interrupted")
        assert found["cost"]["queue"] > 0
        assert found["best"]["median_ns"] is None

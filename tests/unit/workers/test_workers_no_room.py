"""A machine that has no room for another process: that is said, and nothing is blamed for it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_tasks as tasks

from whet.builds.builder import Builder
from whet.builds.job import Built, Job
from whet.core.config import Config
from whet.core.run import Outcome as RunOutcome
from whet.engine import HostLostError, tune
from whet.store import MemoryStore
from whet.targets.function import function
from whet.workers import supervisor
from whet.workers.answers import WorkerNotStarted
from whet.workers.pool import open_pool
from whet.workers.process import available_cores
from whet.workers.session import Session
from whet.workers.task import Kind, Task

NO_ROOM = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


class Forks:
    """Forks as long as there is `room` for them."""

    def __init__(self) -> None:
        self.room = 0
        self._fork = os.fork

    def __call__(self) -> int:
        if self.room == 0:
            raise NO_ROOM
        self.room -= 1
        return self._fork()


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forks]:
    found = Forks()
    with open_pool(1, "fork"):  # its reaper is there before there is no more room
        monkeypatch.setattr(os, "fork", found)
        yield found


def test_a_task_that_no_process_can_be_forked_for_was_not_started(forks: Forks) -> None:
    with open_pool(2, "fork") as pool:
        (outcome,) = tasks.run(pool, Task(tasks.add, (1, 1)))
    assert outcome.kind is Kind.NOT_STARTED
    assert "Resource temporarily unavailable" in outcome.error
    assert "ulimit -u" in outcome.error


@pytest.mark.medium
def test_where_others_run_it_waits_for_one_of_them_to_end(forks: Forks, tmp_path: Path) -> None:
    forks.room = 1
    with open_pool(2, "fork") as pool:
        pool.submit(Task(tasks.wait_for, (tmp_path / "now",)))
        assert tasks.eventually(lambda: not forks.room)
        second = pool.submit(Task(tasks.add, (1, 1)))
        assert pool.wait(0.2) == []
        forks.room = 1
        (tmp_path / "now").touch()
        outcomes = {outcome.ticket: outcome for outcome in pool.wait(None)}
        while pool.pending:
            outcomes |= {outcome.ticket: outcome for outcome in pool.wait(None)}
    assert {outcome.kind for outcome in outcomes.values()} == {Kind.DONE}
    assert outcomes[second].value == 2


def test_a_session_says_what_there_was_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(WorkerNotStarted, match=r"No such file.*; check /no/such/python"):
        Session(tasks.Counter)
    assert tasks.eventually(lambda: supervisor._current is None)


def test_no_folder_is_left_of_what_did_not_start(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with open_pool(1, "fork") as pool:
        tasks.run(pool, Task(tasks.add, (1, 1)))
    assert list(tmp_path.iterdir()) == []


def test_a_build_that_was_not_started_is_no_failure_of_its_config(forks: Forks) -> None:
    with Builder(jobs=1, mode="fork", limit_s=10.0) as builder:
        builder.submit(Config(n=1), Job(Built, (1,)))
        with pytest.raises(WorkerNotStarted, match="ulimit -u"):
            builder.ready()
        assert builder.pending == 0


@pytest.mark.medium
def test_what_was_built_by_then_is_handed_out_first(forks: Forks) -> None:
    forks.room = 1
    with Builder(jobs=1, mode="fork", limit_s=10.0) as builder:
        for n in (1, 2):
            builder.submit(Config(n=n), Job(Built, (n,)))
        assert builder._pool is not None
        finished = builder._pool._dispatcher._finished
        assert tasks.eventually(lambda: len(finished) == 2)
        (result,) = builder.ready()
        assert (result.artifact, builder.pending) == (1, 1)
        with pytest.raises(WorkerNotStarted, match="ulimit -u"):
            builder.ready()
        assert builder.pending == 0


@pytest.mark.medium
def test_a_tuning_ends_without_blaming_a_config_and_the_next_one_finds_the_best(
    forks: Forks,
) -> None:
    def kernel(n: int) -> int:
        return sum(range(1000 * n))

    store, target = MemoryStore(), function(kernel, {"n": [9, 1]})
    with pytest.raises(HostLostError, match="ulimit -u"):
        tune(target, store=store)
    workload = target.workload().id
    assert store.trials(workload) == []
    assert [run.outcome for run in store.runs(workload)] == [RunOutcome.INTERRUPTED]
    forks.room = 1000
    assert tune(target, store=store).config == Config(n=1)


@pytest.mark.medium
def test_no_more_workers_wait_than_there_are_cores_or_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    go_on = tmp_path / "go-on"
    count = available_cores() + 1
    with open_pool(10**9, "spawn") as pool:
        for _ in range(count):
            pool.submit(Task(tasks.wait_for, (go_on,)))
        assert tasks.eventually(lambda: len(list(tmp_path.glob("whet-*"))) == count)
        go_on.touch()
        while pool.pending:
            pool.wait(None)
        assert len(list(tmp_path.glob("whet-*"))) <= count

"""Sixteen processes append to one store at once, and others ask it meanwhile."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from faults_counts import count

from whet.core.errors import StoreError
from whet.core.workload import Workload
from whet.store import SqliteStore
from whet.testing.samples import a_trial, a_workload
from whet.testing.store_kit_base import die_if_stuck, refusal

WRITERS = 16
TRIALS = count(60, 1000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def workload(path: Path) -> Workload:
    workload = a_workload()
    with SqliteStore(path) as store:
        store.put_workload(workload)
    return workload


def fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_if_stuck(110)
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        return str(db.execute("PRAGMA integrity_check").fetchone()[0])


@pytest.mark.slow
def test_many_writers_lose_and_double_nothing_and_readers_go_on(
    path: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    def append_all(writer: int) -> None:
        with SqliteStore(path) as store:
            for n in range(TRIALS):
                config, id = {"writer": writer, "n": n}, f"{writer}-{n}"
                median = 1000.0 + (7 * n + 13 * writer) % 977
                store.append([a_trial(workload, config, id=id, median_ns=median)])

    running = {fork(partial(append_all, writer)) for writer in range(WRITERS)}
    codes, asked, slowest = [], 0, 0.0
    lowest = float("inf")
    with SqliteStore(path, read_only=True) as reader:
        while running:
            start = time.perf_counter()
            best = reader.best(workload.id)
            slowest, asked = max(slowest, time.perf_counter() - start), asked + 1
            if best is not None and best.median_ns is not None:
                assert best.median_ns <= lowest
                lowest = best.median_ns
            time.sleep(0.002)
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                running.discard(pid)
                codes.append(status)
    with capsys.disabled():
        print(f" [best: slowest of {asked:,} {1e3 * slowest:.1f} ms]", end="")
    assert codes == [0] * WRITERS
    with SqliteStore(path) as store:
        ids = [trial.id for trial in store.trials(workload.id, all=True)]
        assert len(store.trials(workload.id)) == WRITERS * TRIALS
    assert sorted(ids) == sorted(f"{w}-{n}" for w in range(WRITERS) for n in range(TRIALS))
    assert integrity(path) == "ok"


@pytest.mark.medium
def test_a_stopped_process_that_holds_the_lock_keeps_writers_waiting_and_nobody_else(
    path: Path, workload: Workload
) -> None:
    (reading, writing), (may, let) = os.pipe(), os.pipe()

    def write_slowly() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE workloads SET active = 5")
            os.write(writing, b"x")
            os.read(may, 1)
            db.execute("COMMIT")

    pid = fork(write_slowly)
    os.read(reading, 1)
    os.kill(pid, signal.SIGSTOP)
    try:
        with SqliteStore(path, busy_s=0.05) as store:
            told = refusal(lambda: store.append([a_trial(workload)]), StoreError)
            assert "is locked" in told
            assert store.trials(workload.id) == []
    finally:
        os.kill(pid, signal.SIGCONT)
        os.write(let, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    with SqliteStore(path) as store:
        assert store.append([a_trial(workload)]) == 1
    for end in (reading, writing):
        os.close(end)

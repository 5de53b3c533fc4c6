"""A store of version 1 becomes one of this version, with all it knows."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from whet.core.config import Config
from whet.core.errors import StoreError
from whet.core.run import Run
from whet.core.status import Status
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store import SqliteStore, open_store
from whet.testing.samples import a_run, a_trial, a_workload

VERSION_1 = """
PRAGMA journal_mode = WAL;
CREATE TABLE workloads (
  n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kernel TEXT NOT NULL, added REAL NOT NULL,
  body TEXT NOT NULL
);
CREATE INDEX workloads_by_kernel ON workloads(kernel);
CREATE TABLE trials (
  n INTEGER PRIMARY KEY, id TEXT NOT NULL,
  workload INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  config_id TEXT NOT NULL, status TEXT NOT NULL, median_ns REAL, created REAL NOT NULL,
  run_id TEXT NOT NULL, config TEXT NOT NULL, cost TEXT NOT NULL, facts TEXT NOT NULL,
  "limit" TEXT, timing TEXT, samples BLOB, error TEXT NOT NULL,
  UNIQUE (workload, id)
);
CREATE INDEX trials_by_workload ON trials(workload);
CREATE TABLE runs (
  n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
  workload INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  started REAL NOT NULL, outcome TEXT NOT NULL, best_id TEXT, body TEXT NOT NULL
);
CREATE INDEX runs_by_start ON runs(workload, started);
PRAGMA application_id = 0x77686574;
PRAGMA user_version = 1;
"""

WORKLOAD = a_workload()
IDLE = a_workload(key={"M": 1})
FAST, SLOW, FAILED = (Config(BM=n) for n in (1, 2, 3))
TRIALS = [
    a_trial(WORKLOAD, SLOW, median_ns=5.0, created=10.0),
    a_trial(WORKLOAD, FAST, median_ns=20.0, created=20.0),
    a_trial(WORKLOAD, FAILED, status=Status.RUN_ERROR, created=30.0),
    a_trial(WORKLOAD, SLOW, median_ns=40.0, created=40.0),
]
RUN = a_run(WORKLOAD, None, started=30.0, wall_s=25.0)


def make_version_1(path: Path, runs: tuple[Run, ...] = (RUN,)) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(VERSION_1)
        for n, workload in enumerate((WORKLOAD, IDLE), start=1):
            insert_workload(db, n, workload)
        for trial in TRIALS:
            insert_trial(db, trial)
        for run in runs:
            body = json.dumps({**run.to_json(), "workload": None})
            row = (run.id, run.started, str(run.outcome), body)
            db.execute(
                "INSERT INTO runs (id, workload, started, outcome, body) VALUES (?, 1, ?, ?, ?)",
                row,
            )
        db.commit()


def insert_workload(db: sqlite3.Connection, n: int, workload: Workload) -> None:
    row = (n, workload.id, workload.kernel, 5.0, json.dumps(workload.to_json()))
    db.execute("INSERT INTO workloads VALUES (?, ?, ?, ?, ?)", row)


def insert_trial(db: sqlite3.Connection, trial: Trial) -> None:
    timing = trial.timing
    db.execute(
        "INSERT INTO trials VALUES (NULL, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            trial.id,
            trial.config.id,
            str(trial.status),
            trial.median_ns,
            trial.created,
            trial.run_id,
            trial.config.json,
            json.dumps(trial.cost.to_json()),
            json.dumps(dict(trial.facts)),
            None,
            None if timing is None else json.dumps(timing.meta_json()),
            None if timing is None else struct.pack("<7d", *timing.samples),
            trial.error,
        ),
    )


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_version_1(tmp_path / "store.db")
    return tmp_path / "store.db"


def test_all_that_was_known_is_still_known(path: Path) -> None:
    with open_store(path) as store:
        assert store.trials(WORKLOAD.id, all=True) == TRIALS
        assert store.runs(WORKLOAD.id) == [RUN]
        assert {summary.workload for summary in store.workloads()} == {WORKLOAD, IDLE}
    assert version_of(path) == 6


def test_the_latest_trials_are_found_among_the_old_ones(path: Path) -> None:
    with open_store(path) as store:
        assert store.trials(WORKLOAD.id) == [TRIALS[3], TRIALS[1], TRIALS[2]]
        assert store.best(WORKLOAD.id) == TRIALS[1]


def test_activity_is_read_off_the_old_trials_and_runs(path: Path) -> None:
    with open_store(path) as store:
        active = {summary.workload: summary.active for summary in store.workloads()}
    assert active == {WORKLOAD: 55.0, IDLE: 5.0}


def test_trials_can_be_appended_afterwards(path: Path) -> None:
    newer = a_trial(WORKLOAD, FAST, median_ns=30.0)
    with open_store(path) as store:
        store.append([newer])
        assert store.best(WORKLOAD.id) == newer


def test_a_copy_of_the_old_store_is_kept_beside_it(path: Path) -> None:
    open_store(path).close()
    backup = path.with_name("store.db.v1.bak")
    assert sorted(os.listdir(path.parent)) == ["store.db", "store.db.v1.bak"]
    assert version_of(backup) == 1
    with closing(sqlite3.connect(backup)) as db:
        ids = [row[0] for row in db.execute("SELECT id FROM trials ORDER BY n")]
    assert ids == [trial.id for trial in TRIALS]


def test_a_store_is_upgraded_once(path: Path) -> None:
    open_store(path).close()
    backup = path.with_name("store.db.v1.bak")
    before = backup.read_bytes()
    open_store(path).close()
    assert sorted(os.listdir(path.parent)) == ["store.db", "store.db.v1.bak"]
    assert backup.read_bytes() == before


def test_an_earlier_backup_is_not_overwritten(path: Path) -> None:
    earlier = path.with_name("store.db.v1.bak")
    earlier.write_text("an older one")
    open_store(path).close()
    assert earlier.read_text() == "an older one"
    assert version_of(path.with_name("store.db.v1.2.bak")) == 1


@pytest.mark.medium
def test_processes_that_upgrade_at_once_make_one_backup(path: Path) -> None:
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with open_store(path) as store:
                    code = 0 if len(store.trials(WORKLOAD.id)) == 3 else 1
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0, 0]
    assert [name for name in os.listdir(path.parent) if "bak" in name] == ["store.db.v1.bak"]


def test_an_old_store_opened_for_reading_is_left_old_and_says_so(path: Path) -> None:
    with pytest.raises(StoreError, match=r"older schema version 1 and is read-only"):
        open_store(path, read_only=True)
    assert version_of(path) == 1


def test_an_upgrade_that_fails_leaves_the_old_store_and_no_copy(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE runs SET body = '{'")
        db.commit()
    with pytest.raises(StoreError, match="cannot be upgraded"):
        open_store(path)
    assert version_of(path) == 1
    assert os.listdir(path.parent) == ["store.db"]


def test_an_upgrade_waits_for_a_writer_and_then_gives_up(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another process"):
            SqliteStore(path, busy_s=0.05)
    assert version_of(path) == 1

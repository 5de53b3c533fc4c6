"""Timelines in SQLite: what a store of version 2 becomes, and what a damaged one says."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from whet.core.config import Config
from whet.core.errors import StoreError
from whet.core.timeline import Span, Timeline
from whet.store import open_store
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import SOME_TIMELINE

VERSION_2 = """
PRAGMA journal_mode = WAL;
CREATE TABLE workloads (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  kernel      TEXT NOT NULL,
  added       REAL NOT NULL,
  active      REAL,
  body        TEXT NOT NULL
);
CREATE INDEX workloads_by_kernel ON workloads(kernel);
CREATE TABLE trials (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL,
  workload    INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  config_id   TEXT NOT NULL,
  status      TEXT NOT NULL,
  median_ns   REAL,
  created     REAL NOT NULL,
  run_id      TEXT NOT NULL,
  config      TEXT NOT NULL,
  cost        TEXT NOT NULL,
  facts       TEXT NOT NULL,
  "limit"     TEXT,
  timing      TEXT,
  samples     BLOB,
  error       TEXT NOT NULL,
  UNIQUE (workload, id)
);
CREATE INDEX trials_by_workload ON trials(workload);
CREATE TABLE latest (
  workload    INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  config_id   TEXT NOT NULL,
  first       INTEGER NOT NULL,
  trial       INTEGER NOT NULL,
  ok          INTEGER NOT NULL,
  median_ns   REAL,
  PRIMARY KEY (workload, config_id)
) WITHOUT ROWID;
CREATE INDEX latest_by_median ON latest(workload, median_ns, first) WHERE ok;
CREATE TABLE runs (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  workload    INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  started     REAL NOT NULL,
  outcome     TEXT NOT NULL,
  best_id     TEXT,
  body        TEXT NOT NULL
);
CREATE INDEX runs_by_start ON runs(workload, started);
PRAGMA application_id = 0x77686574;
PRAGMA user_version = 2;
"""

WORKLOAD = a_workload()
TRIAL = a_trial(WORKLOAD, {"BM": 1}, timing=None, created=40.0)
RUN = a_run(WORKLOAD, {"BM": 1}, started=30.0, wall_s=25.0)


def make_version_2(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(VERSION_2)
        db.execute(
            "INSERT INTO workloads VALUES (1, ?, ?, 5.0, 55.0, ?)",
            (WORKLOAD.id, WORKLOAD.kernel, json.dumps(WORKLOAD.to_json())),
        )
        db.execute(
            "INSERT INTO trials VALUES (1, ?, 1, ?, 'ok', NULL, 40.0, '', ?, ?, ?, "
            "NULL, NULL, NULL, '')",
            (
                TRIAL.id,
                TRIAL.config.id,
                TRIAL.config.json,
                json.dumps(TRIAL.cost.to_json()),
                json.dumps(dict(TRIAL.facts)),
            ),
        )
        db.execute("INSERT INTO latest VALUES (1, ?, 1, 1, 1, NULL)", (TRIAL.config.id,))
        db.execute(
            "INSERT INTO runs VALUES (1, ?, 1, 30.0, 'finished', ?, ?)",
            (RUN.id, Config(BM=1).id, json.dumps({**RUN.to_json(), "workload": None})),
        )
        db.commit()


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


@pytest.fixture
def old(tmp_path: Path) -> Path:
    make_version_2(tmp_path / "store.db")
    return tmp_path / "store.db"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store whose only timeline was overwritten with what is none."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.save_run(RUN)
        store.save_timeline(RUN.id, SOME_TIMELINE)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE timelines SET body = substr(body, 1, 20)")
        db.commit()
    return path


def test_a_store_of_version_2_keeps_all_it_knows_and_takes_timelines(old: Path) -> None:
    with open_store(old) as store:
        assert store.trials(WORKLOAD.id, all=True) == [TRIAL]
        assert store.runs(WORKLOAD.id) == [RUN]
        assert store.timeline(RUN.id) is None
        store.save_timeline(RUN.id, SOME_TIMELINE)
        assert store.timeline(RUN.id) == SOME_TIMELINE
    assert version_of(old) == 6
    assert version_of(old.with_name("store.db.v2.bak")) == 2


def test_an_upgraded_store_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    for path in (old, new):
        open_store(path).close()

    def schema(path: Path) -> set[tuple[str, str]]:
        with closing(sqlite3.connect(path)) as db:
            return set(db.execute("SELECT name, sql FROM sqlite_master"))

    assert schema(old) == schema(new)


def test_a_store_of_version_2_can_be_read_and_is_left_as_it_is(old: Path) -> None:
    with open_store(old, read_only=True) as store:
        assert store.trials(WORKLOAD.id) == [TRIAL]
        assert store.best(WORKLOAD.id) == TRIAL
        assert store.timeline(RUN.id) is None
        assert store.gc(kernel=WORKLOAD.kernel, dry_run=True).runs == 1
    assert version_of(old) == 2
    assert "store.db.v2.bak" not in os.listdir(old.parent)


def test_a_store_of_version_2_can_be_merged_from(old: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "new.db") as store, open_store(old, read_only=True) as source:
        assert store.merge(source).runs == 1
        assert store.timeline(RUN.id) is None


def test_a_damaged_timeline_is_an_error_that_names_the_store(damaged: Path) -> None:
    with (
        open_store(damaged) as store,
        pytest.raises(StoreError, match=r"store\.db is damaged: timeline row 1 is not valid"),
    ):
        store.timeline(RUN.id)


def test_a_damaged_timeline_costs_nothing_else(damaged: Path) -> None:
    with open_store(damaged) as store:
        assert store.run(RUN.id) == RUN
        store.save_timeline(RUN.id, SOME_TIMELINE)
        assert store.timeline(RUN.id) == SOME_TIMELINE


def test_what_a_dry_run_would_free_includes_timelines(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db") as store:
        store.save_run(RUN)
        before = store.gc(kernel=WORKLOAD.kernel, dry_run=True).bytes_freed
        store.save_timeline(RUN.id, SOME_TIMELINE)
        after = store.gc(kernel=WORKLOAD.kernel, dry_run=True).bytes_freed
    assert after - before == len(SOME_TIMELINE.packed())


def test_gc_leaves_no_timeline_behind(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.save_run(RUN)
        store.save_timeline(RUN.id, Timeline((Span("device", "look", 0.0, 1.0),)))
        store.gc(kernel=WORKLOAD.kernel)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM timelines").fetchone()[0] == 0


@pytest.mark.parametrize("body", [b"", b"wtl\x01", b"wtl\x01" + zlib.compress(b""), b"\0" * 99])
def test_no_damage_ends_in_anything_but_a_store_error(damaged: Path, body: bytes) -> None:
    with closing(sqlite3.connect(damaged)) as db:
        db.execute("UPDATE timelines SET body = ?", (body,))
        db.commit()
    with open_store(damaged) as store, pytest.raises(StoreError, match="timeline row 1"):
        store.timeline(RUN.id)

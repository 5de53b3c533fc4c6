"""The tables, and how a store of an older version becomes one of this version."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable

# "whet", in the place where SQLite files say whose they are.
APPLICATION_ID = 0x77686574
SCHEMA_VERSION = 6

# Versions from this one on differ only in what may be missing, so they can be read as they are.
OLDEST_READABLE = 2
FIRST_WITH_TIMELINES = 3
FIRST_WITH_MISSED = 4
FIRST_WITH_MARKS = 5
FIRST_WITH_PICKS = 6

# Columns that look-ups need come before the bulky ones, so that SQLite need not read past them.
# Ids of trials are random: an index of them alone would have every append touch pages all over
# the file, while with the workload in front one workload's trials stay together.
_WORKLOADS = """
CREATE TABLE workloads (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  kernel      TEXT NOT NULL,
  added       REAL NOT NULL,
  active      REAL,
  body        TEXT NOT NULL
)"""

_TRIALS = """
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
)"""

# One row per config: which trial is its latest. Kept in the transaction that appends the trial.
# `first` is the config's first trial and gives the order of appearance. `trial` and `first` are
# no foreign keys: that would want two more indexes for every delete to look into.
_LATEST = """
CREATE TABLE latest (
  workload    INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  config_id   TEXT NOT NULL,
  first       INTEGER NOT NULL,
  trial       INTEGER NOT NULL,
  ok          INTEGER NOT NULL,
  median_ns   REAL,
  PRIMARY KEY (workload, config_id)
) WITHOUT ROWID"""

_RUNS = """
CREATE TABLE runs (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  workload    INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  started     REAL NOT NULL,
  outcome     TEXT NOT NULL,
  best_id     TEXT,
  body        TEXT NOT NULL
)"""

# Apart from the runs, which are read often, and much smaller.
_TIMELINES = """
CREATE TABLE timelines (
  run         INTEGER PRIMARY KEY REFERENCES runs(n) ON DELETE CASCADE,
  body        BLOB NOT NULL
)"""

# Keys that were met where nothing may be tuned. Their workloads have no row until they are tuned.
_MISSED = """
CREATE TABLE missed (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  kernel      TEXT NOT NULL,
  at          REAL NOT NULL,
  body        TEXT NOT NULL
)"""

# One row for each run that is in the middle of first launches, so hardly ever more than one.
_MARKS = """
CREATE TABLE marks (
  n           INTEGER PRIMARY KEY,
  run_id      TEXT NOT NULL UNIQUE,
  workload    INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  body        TEXT NOT NULL
)"""

# One row for each workload with runs of several stores that no run has brought together yet: the
# trial that is its pick, those it is contested with, and all that may not go before a run decides,
# as lists of `trials.n`. It follows from runs and trials; kept, since look-ups have to be quick.
_PICKS = """
CREATE TABLE picks (
  workload    INTEGER PRIMARY KEY REFERENCES workloads(n) ON DELETE CASCADE,
  trial       INTEGER NOT NULL,
  rivals      TEXT NOT NULL,
  kept        TEXT NOT NULL
)"""

_LATEST_INDEX = "CREATE INDEX latest_by_median ON latest(workload, median_ns, first) WHERE ok"

_CURRENT = (
    _WORKLOADS,
    "CREATE INDEX workloads_by_kernel ON workloads(kernel)",
    _TRIALS,
    "CREATE INDEX trials_by_workload ON trials(workload)",
    _LATEST,
    _LATEST_INDEX,
    _RUNS,
    "CREATE INDEX runs_by_start ON runs(workload, started)",
    _TIMELINES,
    _MISSED,
    _MARKS,
    _PICKS,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def create(db: sqlite3.Connection) -> None:
    """Fills an empty database; the caller's transaction makes it all or nothing."""
    for statement in _CURRENT:
        db.execute(statement)


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Takes `version` to `SCHEMA_VERSION`, step by step, inside the caller's transaction."""
    while version < SCHEMA_VERSION:
        _STEPS[version](db)
        version += 1
        db.execute(f"PRAGMA user_version = {version}")


def _from_1(db: sqlite3.Connection) -> None:
    """Version 1 searched all trials for the latest, and for when a workload was last active."""
    db.execute(_LATEST)
    db.execute(_LATEST_INDEX)
    db.execute(
        """
        INSERT INTO latest (workload, config_id, first, trial, ok, median_ns)
        SELECT t.workload, t.config_id, ends.first, t.n, t.status = 'ok', t.median_ns
        FROM (SELECT min(n) AS first, max(n) AS last FROM trials GROUP BY workload, config_id) ends
        JOIN trials t ON t.n = ends.last
        """
    )
    db.execute("ALTER TABLE workloads ADD COLUMN active REAL")
    moments = dict(db.execute("SELECT workload, max(created) FROM trials GROUP BY workload"))
    for workload, body in db.execute("SELECT workload, body FROM runs"):
        run = json.loads(body)
        end = run["started"] + run["wall_s"]
        moments[workload] = max(moments.get(workload, end), end)
    db.executemany(
        "UPDATE workloads SET active = ? WHERE n = ?",
        [(moment, workload) for workload, moment in moments.items()],
    )


def _from_2(db: sqlite3.Connection) -> None:
    """Version 2 kept no timelines; its runs have none."""
    db.execute(_TIMELINES)


def _from_3(db: sqlite3.Connection) -> None:
    """Version 3 did not write down what it missed."""
    db.execute(_MISSED)


def _from_4(db: sqlite3.Connection) -> None:
    """Version 4 wrote nothing down before a launch."""
    db.execute(_MARKS)


def _from_5(db: sqlite3.Connection) -> None:
    """Version 5 took the newest run's choice, whichever store it came from."""
    db.execute(_PICKS)


_STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {
    1: _from_1,
    2: _from_2,
    3: _from_3,
    4: _from_4,
    5: _from_5,
}

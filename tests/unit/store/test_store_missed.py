"""Missed keys on disk: durable, and in stores that are older than the list of them."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from whet.core.errors import StoreError
from whet.store import open_store
from whet.testing.samples import a_trial, a_workload
from whet.testing.store_kit_base import OTHER_MISS, SOME_MISS

TRIAL = a_trial(a_workload())


@pytest.fixture
def version_3(tmp_path: Path) -> Path:
    """A store as version 3 left it: the same tables, without the newest."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.put_workload(a_workload())
        store.append([TRIAL])
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE picks")
        db.execute("DROP TABLE marks")
        db.execute("DROP TABLE missed")
        db.execute("PRAGMA user_version = 3")
        db.commit()
    return path


def test_an_older_store_takes_misses_once_it_is_upgraded_and_a_copy_is_kept(
    version_3: Path,
) -> None:
    with open_store(version_3) as store:
        assert store.missed() == []
        assert store.miss(SOME_MISS)
        assert store.trials(TRIAL.workload_id) == [TRIAL]
    assert version_3.with_name("store.db.v3.bak").exists()


def test_an_older_store_that_is_only_read_has_missed_nothing(version_3: Path) -> None:
    with open_store(version_3, read_only=True) as store:
        assert store.missed() == []
        with pytest.raises(StoreError, match="read-only"):
            store.miss(SOME_MISS)


@pytest.mark.medium
def test_a_process_that_is_killed_has_written_its_misses_down(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    pid = os.fork()
    if pid == 0:
        open_store(path).miss(SOME_MISS)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    with open_store(path) as store:
        assert store.missed() == [SOME_MISS]


def test_a_damaged_miss_is_said_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.miss(OTHER_MISS)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE missed SET body = '{}'")
        db.commit()
    with open_store(path) as store, pytest.raises(StoreError, match="missed row 1 is not valid"):
        store.missed()

"""Marks on disk: they outlive the process that made them, and older stores learn to have them."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from whet.core.errors import StoreError
from whet.store import open_store
from whet.testing.samples import a_trial
from whet.testing.store_kit_base import MARK, WORKLOAD

TRIAL = a_trial(WORKLOAD)


@pytest.fixture
def version_4(tmp_path: Path) -> Path:
    """A store as version 4 left it: the same tables, without the newest."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.put_workload(WORKLOAD)
        store.append([TRIAL])
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE picks")
        db.execute("DROP TABLE marks")
        db.execute("PRAGMA user_version = 4")
        db.commit()
    return path


def test_an_older_store_takes_marks_once_it_is_upgraded_and_a_copy_is_kept(version_4: Path) -> None:
    with open_store(version_4) as store:
        assert store.marks(WORKLOAD.id) == []
        store.mark(MARK)
        assert store.marks(WORKLOAD.id) == [MARK]
        assert store.trials(WORKLOAD.id) == [TRIAL]
    assert version_4.with_name("store.db.v4.bak").exists()


def test_an_older_store_that_is_only_read_has_no_marks(version_4: Path) -> None:
    with open_store(version_4, read_only=True) as store:
        assert store.marks(WORKLOAD.id) == []
        assert store.trials(WORKLOAD.id) == [TRIAL]
        with pytest.raises(StoreError, match="read-only"):
            store.mark(MARK)


@pytest.mark.medium
def test_a_mark_outlives_the_process_that_made_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    pid = os.fork()
    if pid == 0:
        store = open_store(path)
        store.put_workload(WORKLOAD)
        store.mark(MARK)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    with open_store(path) as store:
        assert store.marks(WORKLOAD.id) == [MARK]


def test_a_damaged_mark_is_said_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.put_workload(WORKLOAD)
        store.mark(MARK)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE marks SET body = '{}'")
        db.commit()
    with open_store(path) as store, pytest.raises(StoreError, match="marks row 1 is not valid"):
        store.marks(WORKLOAD.id)

"""Missed keys and marks on disk: durable, and in stores that are older than their tables."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from whet.core.errors import StoreError
from whet.store import Store, open_store
from whet.testing.samples import a_trial
from whet.testing.store_kit_base import MARK, OTHER_MISS, SOME_MISS, WORKLOAD

TRIAL = a_trial(WORKLOAD)
# The last version without the table, how a row of it is written, and how it is read.
TABLES: dict[str, tuple[int, Callable[[Store], Any], Callable[[Store], Any], Any]] = {
    "missed": (3, lambda store: store.miss(SOME_MISS), lambda store: store.missed(), SOME_MISS),
    "marks": (4, lambda store: store.mark(MARK), lambda store: store.marks(WORKLOAD.id), MARK),
}
ADDED = {"missed": 4, "marks": 5, "picks": 6}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.put_workload(WORKLOAD)
        store.append([TRIAL])
    return path


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def make_older(path: Path, version: int) -> None:
    """The store as this version left it: the same tables, without the newest."""
    gone = [f"DROP TABLE {table}" for table, first in ADDED.items() if first > version]
    run_sql(path, *gone, f"PRAGMA user_version = {version}")


@pytest.mark.parametrize("table", TABLES)
def test_an_older_store_takes_rows_once_it_is_upgraded_and_a_copy_is_kept(
    path: Path, table: str
) -> None:
    version, write, read, row = TABLES[table]
    make_older(path, version)
    with open_store(path) as store:
        assert read(store) == []
        write(store)
        assert read(store) == [row]
        assert store.trials(WORKLOAD.id) == [TRIAL]
    assert path.with_name(f"store.db.v{version}.bak").exists()


@pytest.mark.parametrize("table", TABLES)
def test_an_older_store_that_is_only_read_has_no_rows(path: Path, table: str) -> None:
    version, write, read, _ = TABLES[table]
    make_older(path, version)
    with open_store(path, read_only=True) as store:
        assert read(store) == []
        assert store.trials(WORKLOAD.id) == [TRIAL]
        with pytest.raises(StoreError, match="read-only"):
            write(store)


@pytest.mark.parametrize("table", TABLES)
def test_who_only_reads_an_older_store_sees_what_is_written_after_an_upgrade(
    path: Path, table: str
) -> None:
    version, write, read, row = TABLES[table]
    make_older(path, version)
    with open_store(path, read_only=True) as store:
        assert read(store) == []
        with open_store(path) as other:
            write(other)
        assert read(store) == [row]


@pytest.mark.medium
@pytest.mark.parametrize("table", TABLES)
def test_what_a_process_has_written_outlives_it(path: Path, table: str) -> None:
    _, write, read, row = TABLES[table]
    pid = os.fork()
    if pid == 0:
        write(open_store(path))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    with open_store(path) as store:
        assert read(store) == [row]


@pytest.mark.parametrize("table", TABLES)
def test_damage_is_said_with_its_row(path: Path, table: str) -> None:
    with open_store(path) as store:
        store.miss(OTHER_MISS)
        store.mark(MARK)
    run_sql(path, f"UPDATE {table} SET body = '{{}}'")
    damaged = pytest.raises(StoreError, match=f"{table} row 1 is not valid")
    with open_store(path) as store, damaged:
        TABLES[table][2](store)

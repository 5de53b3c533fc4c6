"""A store of every older version becomes one of this version, also when that is cut short."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from test_store_migration import RUN, TRIALS, WORKLOAD, make_version_1, version_of

from whet.core.errors import StoreError
from whet.store import connecting, open_store
from whet.testing.store_kit_base import in_child

OLDER = range(1, connecting.SCHEMA_VERSION)


def make_version(path: Path, version: int) -> None:
    make_version_1(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for older in range(1, version):
            connecting._STEPS[older](db)
        db.execute(f"PRAGMA user_version = {version}")


def everything(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        return list(db.iterdump())


def check_all_known(path: Path) -> None:
    with open_store(path) as store:
        assert store.trials(WORKLOAD.id, all=True) == TRIALS
        assert store.best(WORKLOAD.id) == TRIALS[1]
        assert store.runs(WORKLOAD.id) == [RUN]


@pytest.mark.parametrize("version", OLDER)
def test_every_older_version_is_upgraded_and_a_copy_kept(tmp_path: Path, version: int) -> None:
    path = tmp_path / "store.db"
    make_version(path, version)
    before = everything(path)
    check_all_known(path)
    assert version_of(path) == connecting.SCHEMA_VERSION
    backup = tmp_path / f"store.db.v{version}.bak"
    assert version_of(backup) == version
    assert everything(backup) == before


@pytest.mark.parametrize("version", OLDER)
def test_every_older_version_comes_to_the_same_tables(tmp_path: Path, version: int) -> None:
    make_version(tmp_path / "old.db", version)
    for name in ("old.db", "new.db"):
        open_store(tmp_path / name).close()
    assert columns(tmp_path / "old.db") == columns(tmp_path / "new.db")


def columns(path: Path) -> dict[str, set[str]]:
    with closing(sqlite3.connect(path)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master")]
        return {t: {row[1] for row in db.execute(f"PRAGMA table_info('{t}')")} for t in tables}


@pytest.mark.parametrize("read_only", [False, True])
def test_the_next_version_is_refused_and_keeps_every_byte(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "store.db"
    open_store(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {connecting.SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="upgrade whet"):
        open_store(path, read_only=read_only)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["store.db"]


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(step: Callable[..., object]) -> Callable[..., None]:
    def done_and_dead(*arguments: object) -> None:
        step(*arguments)
        die()

    return done_and_dead


MOMENTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before the copy has its name": lambda patch: patch.setattr(connecting, "_link_free", die),
    "before the first step": lambda patch: patch.setattr(connecting, "migrate", die),
    "after the last step": lambda patch: patch.setattr(
        connecting, "migrate", die_after(connecting.migrate)
    ),
    **{
        f"after step {number}": lambda patch, number=number: patch.setitem(  # type: ignore[misc]
            connecting._STEPS, number, die_after(connecting._STEPS[number])
        )
        for number in OLDER
    },
}


@pytest.mark.medium
@pytest.mark.parametrize("moment", MOMENTS)
def test_kill_9_during_an_upgrade_leaves_the_old_store_whole(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    make_version(path, 1)
    before = everything(path)

    def upgrade_and_die() -> bool:
        MOMENTS[moment](monkeypatch)
        open_store(path)
        return True

    assert not in_child(upgrade_and_die)
    assert version_of(path) == 1
    assert everything(path) == before
    check_all_known(path)
    assert version_of(path) == connecting.SCHEMA_VERSION

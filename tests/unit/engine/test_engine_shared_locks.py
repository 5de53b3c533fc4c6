"""The lock of a GPU in the folder that all users share, where anybody may have put anything."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from whet.engine import turns
from whet.engine.turns import file_lock

ANOTHER = 54_321

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Not in pytest's own folder, which other users may not enter."""
    around = Path(tempfile.mkdtemp())
    around.chmod(0o1777)
    monkeypatch.setattr(turns, "_FOLDER", around / "whet-locks")
    yield around / "whet-locks" / "gpu-1.lock"
    shutil.rmtree(around)


@contextmanager
def another_user() -> Iterator[None]:
    os.seteuid(ANOTHER)
    try:
        yield
    finally:
        os.seteuid(0)


def mode(path: Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_every_user_may_lock_it_whoever_was_first(lock: Path) -> None:
    before = os.umask(0o077)
    try:
        with file_lock(lock, 0.0) as had:
            assert had
            with file_lock(lock, 0.0) as second:
                assert not second
    finally:
        os.umask(before)
    assert (mode(lock.parent), mode(lock)) == (0o1777, 0o666)


@as_root
def test_two_users_do_not_have_it_at_once(lock: Path) -> None:
    with another_user(), file_lock(lock, 0.0) as theirs:
        assert theirs
        os.seteuid(0)
        with file_lock(lock, 0.0) as ours:
            assert not ours
    with file_lock(lock, 0.0) as ours, another_user(), file_lock(lock, 0.0) as theirs:
        assert (ours, theirs) == (True, False)


@as_root
def test_in_another_users_folder_it_is_not_had_and_that_is_said_once(lock: Path) -> None:
    lock.parent.mkdir(mode=0o755)
    with another_user(), pytest.warns(match="Permission denied"), file_lock(lock, 0.0) as had:
        assert not had
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with another_user(), file_lock(lock, 0.0) as had:
            assert not had


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_planted_link_is_not_followed(lock: Path, tmp_path: Path, what: str) -> None:
    if what == "file":
        lock.parent.mkdir()
        lock.symlink_to(tmp_path / "planted")
    else:
        lock.parent.symlink_to(tmp_path)
    with pytest.warns(match="cannot lock"), file_lock(lock, 0.0) as had:
        assert not had
    assert list(tmp_path.iterdir()) == []


def test_a_planted_pipe_is_no_lock(lock: Path) -> None:
    lock.parent.mkdir()
    os.mkfifo(lock)
    with pytest.warns(match="it is no file"), file_lock(lock, 0.0) as had:
        assert not had


def test_a_lock_beside_a_store_follows_no_link_either(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "w.lock").symlink_to(tmp_path / "planted")
    with file_lock(tmp_path / "locks" / "w.lock", 0.0):
        assert not (tmp_path / "planted").exists()

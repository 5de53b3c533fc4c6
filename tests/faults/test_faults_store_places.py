"""Folders, links and files that are not as they should be, or do not stay so."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import whet
from whet.cli import main
from whet.core.errors import StoreError
from whet.core.workload import Workload
from whet.store import SqliteStore, open_store
from whet.testing.samples import a_trial, a_workload
from whet.testing.store_kit_base import in_child, refusal

NOBODY = 65534


def fill(path: Path) -> Workload:
    workload = a_workload()
    with SqliteStore(path) as store:
        store.put_workload(workload)
        store.append([a_trial(workload)])
    return workload


def unprivileged(check: Callable[[], bool]) -> bool:
    """What `check` says to a process that is not the superuser's, who may write anything."""

    def give_up_privilege_and_check() -> bool:
        if os.getuid() == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)
        return check()

    return in_child(give_up_privilege_and_check)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that another user can enter, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)
        os.chmod(name, 0o755)


def test_a_folder_that_may_not_be_made_is_said(folder: Path) -> None:
    folder.chmod(0o555)
    path = folder / "a" / "b" / "store.db"

    def says_so() -> bool:
        told = refusal(lambda: open_store(path))
        return str(path) in told and "Permission denied" in told and "store=…" in told

    assert unprivileged(says_so)
    assert not (folder / "a").exists()


@pytest.mark.medium
def test_a_folder_that_may_not_be_entered_is_said(folder: Path) -> None:
    path = folder / "store.db"
    fill(path)
    folder.chmod(0o000)
    assert unprivileged(lambda: "store=…" in refusal(lambda: open_store(path)))
    assert unprivileged(lambda: "store=…" in refusal(lambda: open_store(path, read_only=True)))


KERNEL = """
import whet

tiny = whet.function(lambda n: n, {"n": [1, 2]}, name="tiny", isolate=False)
"""


@pytest.mark.parametrize("command", ["tune", "best tiny", "store stats", "store gc", "store merge"])
@pytest.mark.parametrize("place", ["/proc/none/store.db", "file/store.db", "loop/store.db"])
def test_a_command_whose_store_cannot_be_ends_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, place: str
) -> None:
    """Nobody can make a folder in /proc, below a file or in a link to itself, not even root."""
    (tmp_path / "file").write_text(KERNEL)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "kernel.py").write_text(KERNEL)
    more = {
        "tune": ["--quiet", str(tmp_path / "kernel.py")],
        "store gc": ["--older-than", "1d"],
        "store merge": [str(tmp_path / "other.db")],
    }
    open_store(tmp_path / "other.db").close()
    words = [*command.split(), *more.get(command, [])]
    assert main([*words, "--store", str(tmp_path / place)]) in (0, 1, 2)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert "a bug" not in said.err
    assert said.err.count("\n") <= 1


def test_a_link_to_a_store_is_the_store(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "store.db", tmp_path / "link.db"
    real.parent.mkdir()
    workload = fill(real)
    link.symlink_to(real)
    with open_store(link) as by_link, open_store(real) as by_name:
        by_link.append([a_trial(workload, {"BM": 2})])
        by_name.append([a_trial(workload, {"BM": 3})])
        assert len(by_link.trials(workload.id)) == len(by_name.trials(workload.id)) == 3
    assert sorted(os.listdir(tmp_path)) == ["link.db", "real"]


@pytest.mark.medium
def test_results_in_the_log_of_a_linked_store_are_not_passed_over(folder: Path) -> None:
    real, link = folder / "real" / "store.db", folder / "store.db"
    real.parent.mkdir()
    workload = fill(real)

    def append_and_leave_the_log() -> bool:
        SqliteStore(real).append([a_trial(workload, {"BM": 2})])
        os._exit(0)

    assert in_child(append_and_leave_the_log)
    (real.parent / "store.db-shm").unlink()
    link.symlink_to(real)
    real.parent.chmod(0o555)
    assert unprivileged(lambda: "store.db-wal" in refusal(lambda: SqliteStore(link)))


def test_a_link_that_leads_to_itself_is_said(tmp_path: Path) -> None:
    link = tmp_path / "store.db"
    link.symlink_to(link)
    with pytest.raises(StoreError, match="store=…"):
        open_store(link)


def remove(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def replace_by_another(folder: Path) -> None:
    remove(folder)

    def make_another() -> bool:
        return fill(folder / "store.db") is not None

    assert in_child(make_another)


@pytest.mark.parametrize("fate", [remove, replace_by_another, shutil.rmtree])
def test_nothing_is_written_to_a_store_that_is_gone(
    tmp_path: Path, fate: Callable[[Path], None]
) -> None:
    """SQLite would take it, into a file that nobody can open any more."""
    path = tmp_path / "stores" / "store.db"
    path.parent.mkdir()
    workload = fill(path)
    store = SqliteStore(path)
    store.append([a_trial(workload, {"BM": 2})])
    fate(path.parent)
    with pytest.raises(StoreError, match=r"was removed or replaced while in use"):
        store.append([a_trial(workload, {"BM": 3})])
    store.close()


def test_who_closes_a_store_that_is_gone_leaves_the_new_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    workload = fill(path)
    store = SqliteStore(path)
    store.append([a_trial(workload, {"BM": 2})])
    remove(tmp_path)

    def make_another_and_leave_its_log() -> bool:
        other = SqliteStore(path)
        other.put_workload(workload)
        other.append(a_trial(workload, {"BM": n}) for n in range(7))
        os._exit(0)

    assert in_child(make_another_and_leave_its_log)
    store.close()
    with SqliteStore(path) as again:
        assert len(again.trials(workload.id)) == 7


def test_a_tuning_whose_store_is_removed_ends_with_the_best_so_far(tmp_path: Path) -> None:
    path = tmp_path / "stores" / "store.db"

    def work(n: int) -> int:
        if n == 60 and path.parent.exists():
            shutil.rmtree(path.parent)
        return sum(range(n))

    target = whet.function(work, {"n": [10, 20, 30, 40, 50, 60]}, isolate=False)
    with pytest.raises(whet.StoreLostError, match="was removed or replaced") as caught:
        whet.tune(target, store=path, search="grid", jobs=1)
    assert caught.value.result is not None


def test_a_child_makes_no_store_in_place_of_one_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    workload = fill(path)
    with SqliteStore(path) as store:
        remove(tmp_path)
        assert in_child(lambda: "was removed" in refusal(lambda: store.trials(workload.id)))
    assert not path.exists()

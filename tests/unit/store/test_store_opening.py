"""What a person may write for a store, and what each of it opens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whet.core.errors import StoreError, UsageError
from whet.store import MemoryStore, SqliteStore, open_store
from whet.testing.samples import a_trial, a_workload

ODD = "a b?c#d%20e&f=ü.db"


def test_none_means_the_environment_variable(tmp_path: Path) -> None:
    place = tmp_path / "here.db"
    with open_store(environ={"WHET_STORE": str(place)}) as store:
        assert store.location == str(place)
    assert place.exists()


def test_without_it_the_store_is_in_the_xdg_data_folder(tmp_path: Path) -> None:
    with open_store(environ={"XDG_DATA_HOME": str(tmp_path), "WHET_STORE": ""}) as store:
        assert store.location == str(tmp_path / "whet" / "store.db")


@pytest.mark.parametrize("xdg", [{}, {"XDG_DATA_HOME": ""}, {"XDG_DATA_HOME": "relative"}])
def test_without_that_it_is_under_the_home_folder(tmp_path: Path, xdg: dict[str, str]) -> None:
    with open_store(environ={"HOME": str(tmp_path), **xdg}) as store:
        assert store.location == str(tmp_path / ".local" / "share" / "whet" / "store.db")


def test_an_argument_comes_before_the_environment(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db", environ={"WHET_STORE": str(tmp_path / "b.db")}) as store:
        assert store.location == str(tmp_path / "a.db")
    assert os.listdir(tmp_path) == ["a.db"]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    open_store(tmp_path / "not" / "yet" / "store.db").close()
    assert (tmp_path / "not" / "yet" / "store.db").is_file()


def test_making_a_store_leaves_that_one_file(tmp_path: Path) -> None:
    open_store(tmp_path / "store.db").close()
    assert os.listdir(tmp_path) == ["store.db"]


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_store("~/mine.db") as store:
        assert store.location == str(tmp_path / "mine.db")


def test_three_slashes_are_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store("sqlite:///sub/store.db") as store:
        assert store.location == str(tmp_path / "sub" / "store.db")


def test_four_slashes_are_absolute(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        assert store.location == str(tmp_path / "store.db")


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_odd_characters_mean_themselves(tmp_path: Path, prefix: str) -> None:
    workload = a_workload()
    with open_store(f"{prefix}{tmp_path}/{ODD}") as store:
        store.put_workload(workload)
        store.append([a_trial(workload)])
    assert os.listdir(tmp_path) == [ODD]
    with SqliteStore(tmp_path / ODD) as again:
        assert len(again.trials(workload.id)) == 1


def test_a_name_that_is_not_text_can_be_used(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xfe.db")
    open_store(tmp_path / name).close()
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("where", [":memory:", "sqlite://", "sqlite:///:memory:", Path(":memory:")])
def test_a_store_in_memory_leaves_no_file(
    where: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(where) as store:
        assert isinstance(store, MemoryStore)
        store.put_workload(a_workload())
    assert os.listdir(tmp_path) == []


def test_a_store_in_memory_can_be_read_only() -> None:
    with (
        open_store(":memory:", read_only=True) as store,
        pytest.raises(StoreError, match="read-only"),
    ):
        store.put_workload(a_workload())


@pytest.mark.parametrize(
    "where", ["mysql://host/db", "file:///x.db", "sqlite:x.db", "sqlite://x.db", "SQLITE:///x"]
)
def test_an_unknown_scheme_is_refused_with_the_valid_ones(where: str) -> None:
    with pytest.raises(UsageError, match="sqlite:///relative/path") as caught:
        open_store(where)
    assert where in str(caught.value)


@pytest.mark.parametrize("where", ["", "a\0b"])
def test_what_cannot_be_a_path_is_refused(where: str) -> None:
    with pytest.raises(UsageError, match="is not valid; use a path"):
        open_store(where)


def test_redis_is_refused_with_what_there_is_instead_and_without_the_password() -> None:
    with pytest.raises(
        UsageError, match=r"no store on Redis; .* postgresql://host/database"
    ) as said:
        open_store("redis://:secret@cache:6379/0")
    assert "secret" not in str(said.value)


def test_a_folder_is_refused_with_a_file_to_name_instead(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"is a directory; name a file in it, such as .*/store\.db"
    ):
        open_store(tmp_path)


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        open_store(tmp_path / "pipe")


def test_a_file_in_the_way_of_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreError, match=r"file/store\.db"):
        open_store(tmp_path / "file" / "store.db")


def test_a_name_that_is_too_long_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="too long"):
        open_store(tmp_path / ("n" * 300))


def test_reading_a_store_that_is_not_there_makes_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no store at .*/store\.db yet"):
        open_store(tmp_path / "sub" / "store.db", read_only=True)
    assert os.listdir(tmp_path) == []


def test_a_link_to_a_place_where_no_store_is_yet_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    open_store(tmp_path / "link.db").close()
    assert (tmp_path / "link.db").is_symlink()
    assert (tmp_path / "real.db").is_file()


def test_the_log_of_a_store_that_is_gone_is_not_replayed_into_a_new_one(tmp_path: Path) -> None:
    log = tmp_path / "store.db-wal"
    log.write_bytes(b"somebody's last commits")
    with pytest.raises(StoreError, match=r"store\.db-wal is left over"):
        open_store(tmp_path / "store.db")
    assert log.read_bytes() == b"somebody's last commits"
    assert os.listdir(tmp_path) == ["store.db-wal"]


@pytest.mark.medium
def test_a_store_that_was_deleted_with_only_its_file_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.put_workload(a_workload())
    with open_store(path, read_only=True) as reading:
        assert len(reading.workloads()) == 1
    path.unlink()
    assert sorted(os.listdir(tmp_path)) == ["store.db-shm", "store.db-wal"]  # of whoever read
    with open_store(path) as store:
        assert store.workloads() == []
        store.put_workload(a_workload())
    assert os.listdir(tmp_path) == ["store.db"]


def test_a_store_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store("store.db") as store:
        monkeypatch.chdir("/")
        store.put_workload(a_workload())
        assert store.location == str(tmp_path / "store.db")

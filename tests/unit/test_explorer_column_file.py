"""Columns kept beside a store: never trusted further than they fit it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from explorer_samples import decoded, fill, hostile, trial
from whet.explorer import column_file
from whet.explorer.stored import StoreSubject
from whet.store import SqliteStore
from whet.store.scanning import scan


@pytest.fixture(autouse=True)
def _for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_file, "FEWEST_ROWS", 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "s.db") as opened:
        yield opened


def _read(store: SqliteStore) -> tuple[StoreSubject, dict[str, object]]:
    """As by an explorer that was just started, which then keeps what it has read."""
    subject = StoreSubject(store, store.workloads()[0])
    header, arrays = decoded(subject.encoded(0))
    subject._keep()
    return subject, {**header, "epoch": "", **{name: one.tolist() for name, one in arrays.items()}}


def _alike(one: dict[str, object], two: dict[str, object]) -> bool:
    return np.array_equal(repr(one), repr(two))


def test_what_is_kept_is_what_was_read(store: SqliteStore, tmp_path: Path) -> None:
    run = fill(store)
    _, first = _read(store)
    path = tmp_path / "s.db.columns" / f"{run.workload.id}.columns"
    assert path.is_file()
    again = column_file.load(path, scan(store, run.workload.id))
    assert again is not None
    assert again.rows == 32
    _, second = _read(store)
    assert _alike(first, second)


def test_what_came_later_is_added_to_it(store: SqliteStore) -> None:
    run = fill(store)
    _read(store)
    store.append([trial(run.workload, {"BM": 16, "BN": 32, "num_warps": 4}, 7.0)])
    store.append([trial(run.workload, {"BM": 32, "BN": 32, "num_warps": 4}, 8.0)])
    _, told = _read(store)
    assert told["rows"] == 34
    assert told["replaces"] == [0] * 33 + [1]
    assert told["parameters"][0]["values"] == [16, 32, 64, 128, 256]  # type: ignore[index]


def test_hostile_text_comes_back_as_it_was(store: SqliteStore) -> None:
    hostile(store)
    _, first = _read(store)
    _, second = _read(store)
    assert _alike(first, second)


def test_it_is_made_anew_where_rows_are_gone(store: SqliteStore) -> None:
    run = fill(store)
    store.append([trial(run.workload, {"BM": 32, "BN": 32, "num_warps": 4}, 8.0)])
    _read(store)
    store.gc(superseded=True)
    _, told = _read(store)
    assert told["rows"] == 32


def test_another_store_in_the_same_place_is_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SqliteStore(path) as store:
        fill(store)
        _read(store)
    for part in tmp_path.glob("s.db*"):
        if part.is_file():
            part.unlink()
    with SqliteStore(path) as store:
        run = fill(store, started=5000.0)
        kept = tmp_path / "s.db.columns" / f"{run.workload.id}.columns"
        assert kept.is_file()
        assert column_file.load(kept, scan(store, run.workload.id)) is None
        _, told = _read(store)
        assert told["runs"] == [run.id]


@pytest.mark.parametrize("at", [0, 9, 40, 700, -8])
def test_a_damaged_file_is_as_good_as_none(store: SqliteStore, tmp_path: Path, at: int) -> None:
    fill(store)
    _, first = _read(store)
    (path,) = (tmp_path / "s.db.columns").iterdir()
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:at] + b"\xff\xff\xff" + whole[at:][3:]):
        path.write_bytes(damaged)
        _, told = _read(store)
        # Only times and costs have no copy to be checked against.
        for name in ("rows", "parameters", "errors", "runs"):
            assert told[name] == first[name]


def test_a_folder_that_cannot_be_written_is_no_misfortune(
    store: SqliteStore, tmp_path: Path
) -> None:
    (tmp_path / "s.db.columns").write_text("in the way")
    fill(store)
    _, told = _read(store)
    assert told["rows"] == 32

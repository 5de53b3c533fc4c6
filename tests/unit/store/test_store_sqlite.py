"""What only a store in a file can show."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from whet.core.frozen import FrozenMap
from whet.core.intermediate import keep_stages
from whet.core.status import Status
from whet.core.workload import Workload
from whet.store import MemoryStore, SqliteStore
from whet.store.statements import LITE
from whet.testing.samples import a_run, a_trial, a_workload


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_what_was_stored_is_there_when_it_is_opened_again(path: Path) -> None:
    workload = a_workload(key={"shape": (2, (3, 4))})
    trial, run = a_trial(workload), a_run(workload, {"BM": 64, "BN": 32})
    with SqliteStore(path) as store:
        store.save_run(run)
        store.append([trial])
    with SqliteStore(path) as store:
        assert store.trials(workload.id) == [trial]
        assert store.runs(workload.id) == [run]
        assert store.best(workload.id) == trial
        assert [summary.workload for summary in store.workloads()] == [workload]


def test_a_trial_is_seen_by_others_as_soon_as_it_is_appended(path: Path) -> None:
    workload = a_workload()
    with SqliteStore(path) as one, SqliteStore(path) as two:
        one.put_workload(workload)
        one.append([a_trial(workload)])
        assert two.best(workload.id) == one.best(workload.id) is not None


def test_a_trial_that_was_read_is_decoded_once_and_superseded_all_the_same(path: Path) -> None:
    workload = a_workload()
    trial = a_trial(workload)
    with SqliteStore(path) as store:
        store.put_workload(workload)
        store.append([trial])
        [first], [again] = store.trials(workload.id), store.trials(workload.id)
        assert first is again
        newer = trial.superseded_by(status=Status.OUTRACED, run_id="r2", created=99.0)
        store.append([newer])
        assert store.trials(workload.id) == [newer]
        assert store.trials(workload.id, all=True) == [trial, newer]


def test_the_file_says_whose_it_is_and_in_which_version(path: Path) -> None:
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone()[0] == int.from_bytes(b"whet", "big")
        assert db.execute("PRAGMA user_version").fetchone()[0] == 6


def test_samples_are_kept_as_packed_doubles(path: Path) -> None:
    workload = a_workload()
    with SqliteStore(path) as store:
        store.put_workload(workload)
        store.append([a_trial(workload)])
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT length(samples) FROM trials").fetchone()[0] == 7 * 8


def test_best_and_latest_are_found_by_index_alone(path: Path) -> None:
    """No statement of theirs may come to walk all trials or all configs of a workload."""
    workload = a_workload()
    plans: list[str] = []
    with SqliteStore(path) as store:
        store.put_workload(workload)
        store.append([a_trial(workload)])
        with closing(sqlite3.connect(path)) as db:
            for statement, values in (
                (LITE.PICK, {"workload": workload.id}),
                (LITE.LATEST_TRIAL, {"workload": workload.id, "config": "x"}),
            ):
                plans += [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert not [step for step in plans if "SCAN latest" in step or "SCAN trials" in step]
    assert not [step for step in plans if "SCAN t" in step or "SCAN l" in step]
    assert not [step for step in plans if "TEMP B-TREE" in step]


@pytest.mark.slow
def test_the_room_of_what_gc_removes_is_given_back(path: Path) -> None:
    workload = a_workload()
    with SqliteStore(path) as store:
        store.put_workload(workload)
        store.append(a_trial(workload, {"n": n}) for n in range(2000))
    before = path.stat().st_size
    with SqliteStore(path) as store:
        estimate = store.gc(kernel="matmul", dry_run=True).bytes_freed
        report = store.gc(kernel="matmul")
    freed = before - path.stat().st_size
    assert report.bytes_freed == freed
    assert 0.5 * freed < estimate < 2 * freed


def _kept_beside(path: Path, *workloads: Workload) -> list[Path]:
    """Columns, report and code of each, and code that a build has just written."""
    columns, journeys, code = (Path(f"{path}.{name}") for name in ("columns", "journeys", "ir"))
    columns.mkdir()
    journeys.mkdir()
    for one in workloads:
        (columns / f"{one.id}.columns").write_bytes(bytes(1000))
        (journeys / f"{one.id}.html").write_bytes(bytes(1000))
        keep_stages(code, one.kernel, {"ttir": "module {}"})
        os.utime(code / f"{one.kernel}.json.gz", (1e9, 1e9))
    keep_stages(code, "new", {"ttir": "module {}"})
    return [*columns.iterdir(), *journeys.iterdir(), *code.iterdir()]


def test_gc_removes_what_is_beside_the_store_of_trials_that_go(path: Path) -> None:
    old, kept = a_workload(kernel="old"), a_workload(kernel="kept")
    with SqliteStore(path) as store:
        for one in (old, kept):
            store.put_workload(one)
            store.append([a_trial(one, facts=FrozenMap({"ir": one.kernel}))])
        beside = _kept_beside(path, old, kept)
        store.gc(kernel="old", dry_run=True)
        assert all(one.exists() for one in beside)
        size = path.stat().st_size
        report = store.gc(kernel="old")
    left = {one.name for one in beside if one.exists()}
    assert left == {f"{kept.id}.columns", f"{kept.id}.html", "kept.json.gz", "new.json.gz"}
    assert report.bytes_freed >= 2000 + size - path.stat().st_size


def test_gc_of_superseded_trials_removes_columns_that_hold_them(path: Path) -> None:
    of = a_workload(kernel="kept")
    with SqliteStore(path) as store:
        store.put_workload(of)
        store.append(a_trial(of, facts=FrozenMap({"ir": "kept"})) for _ in range(2))
        _kept_beside(path, of)
        assert store.gc(superseded=True).trials == 1
    assert not Path(f"{path}.columns").exists()
    assert (Path(f"{path}.ir") / "kept.json.gz").exists()


@pytest.mark.medium
def test_gc_while_another_process_reads_removes_and_harms_nothing_else(path: Path) -> None:
    old, kept = a_workload(kernel="old"), a_workload()
    with SqliteStore(path) as store:
        for workload in (old, kept):
            store.put_workload(workload)
            store.append(a_trial(workload, {"n": n}) for n in range(500))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM trials").fetchone()[0] == 1000
        with SqliteStore(path, busy_s=0.05) as store:
            assert store.gc(kernel="old").trials == 500
            assert len(store.trials(kept.id)) == 500
        assert reader.execute("SELECT count(*) FROM trials").fetchone()[0] == 1000


def test_a_store_put_back_to_another_journal_mode_is_taken_as_it_is(path: Path) -> None:
    workload = a_workload()
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    with SqliteStore(path) as store:
        store.put_workload(workload)
        assert store.append([a_trial(workload)]) == 1
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_stores_of_different_kinds_merge(path: Path) -> None:
    workload = a_workload()
    memory = MemoryStore()
    memory.put_workload(workload)
    memory.append(a_trial(workload, {"n": n}) for n in range(3))
    with SqliteStore(path) as store:
        assert store.merge(memory).trials == 3
        back = MemoryStore()
        assert back.merge(store).trials == 3
        assert back.trials(workload.id) == memory.trials(workload.id)

"""A store that cannot be used is said plainly, and never harmed."""

from __future__ import annotations

import os
import resource
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from whet.core.errors import StoreError
from whet.core.workload import Workload
from whet.store import MemoryStore, SqliteStore, open_store
from whet.store.faults import store_error
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import in_child, refusal

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def workload(path: Path) -> Workload:
    """Of the one trial in the store at `path`, which is closed."""
    return fill(path)


def fill(path: Path) -> Workload:
    workload = a_workload()
    with SqliteStore(path) as store:
        store.put_workload(workload)
        store.append([a_trial(workload)])
    return workload


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def foreign_database(path: Path) -> None:
    run_sql(path, "CREATE TABLE t (x)", "INSERT INTO t VALUES (1)")


def claimed_database(path: Path) -> None:
    run_sql(
        path, "PRAGMA application_id = 252006673", "PRAGMA user_version = 2", "CREATE TABLE t (x)"
    )


NOT_STORES: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("BM,BN,ns\n64,32,1000\n" * 300),
    "short text": lambda path: path.write_text("x"),
    "zeros": lambda path: path.write_bytes(bytes(8192)),
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(b"SQLite format 3\0"),
    "database": foreign_database,
    "database of an application": claimed_database,
}


@pytest.mark.parametrize("kind", NOT_STORES)
@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_not_a_store_is_refused_and_keeps_every_byte(
    path: Path, kind: str, read_only: bool
) -> None:
    NOT_STORES[kind](path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"not a whet store.*not changed") as caught:
        open_store(path, read_only=read_only)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["store.db"]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_schema_is_refused_and_keeps_every_byte(
    path: Path, workload: Workload, read_only: bool
) -> None:
    run_sql(path, "PRAGMA user_version = 7")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"schema version 7, .* up to 6; upgrade whet"):
        open_store(path, read_only=read_only)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["store.db"]


def test_a_newer_schema_is_noticed_while_it_is_only_in_the_log(
    path: Path, workload: Workload
) -> None:
    with closing(sqlite3.connect(path)) as upgrader:
        upgrader.execute("PRAGMA user_version = 7")
        for read_only in (False, True):
            with pytest.raises(StoreError, match="upgrade whet"):
                open_store(path, read_only=read_only)


def test_a_lock_held_for_too_long_is_said_with_the_remedy(path: Path, workload: Workload) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with SqliteStore(path, busy_s=0.05) as store:
            with pytest.raises(StoreError, match=r"is locked by another process.*store=…") as told:
                store.append([a_trial(workload)])
            assert str(path) in str(told.value)
            assert len(store.trials(workload.id)) == 1
            other.execute("ROLLBACK")
            assert store.append([a_trial(workload)]) == 1


def test_a_store_locked_for_good_cannot_be_opened_and_says_so(
    path: Path, workload: Workload
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE workloads SET active = 1")
        with pytest.raises(StoreError, match="is locked by another process"):
            SqliteStore(path, busy_s=0.05)


WRITES: dict[str, Callable[[SqliteStore], object]] = {
    "put_workload": lambda store: store.put_workload(a_workload(kernel="new")),
    "append": lambda store: store.append([a_trial(a_workload())]),
    "append of nothing": lambda store: store.append([]),
    "save_run": lambda store: store.save_run(a_run(a_workload())),
    "gc": lambda store: store.gc(kernel="matmul"),
    "merge": lambda store: store.merge(store),
    "merge of nothing": lambda store: store.merge(MemoryStore()),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_store_opened_for_reading_refuses_to_write(
    path: Path, workload: Workload, write: str
) -> None:
    before = path.read_bytes()
    with SqliteStore(path, read_only=True) as store:
        assert store.read_only
        with pytest.raises(StoreError, match=r"is read-only.*store=… or WHET_STORE$"):
            WRITES[write](store)
        assert store.best(workload.id) is not None
        assert store.gc(kernel="matmul", dry_run=True).trials == 1
    assert path.read_bytes() == before


def test_a_reader_sees_what_is_committed_while_it_is_open(path: Path, workload: Workload) -> None:
    with SqliteStore(path, read_only=True) as reader, SqliteStore(path) as writer:
        writer.append([a_trial(workload, {"BM": 2})])
        assert len(reader.trials(workload.id)) == 2


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that another user can enter, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
        os.chmod(folder, 0o755)


def unprivileged(check: Callable[[], bool]) -> bool:
    """What `check` says to a process that is not the superuser's, who may write anything."""

    def give_up_privilege_and_check() -> bool:
        if os.getuid() == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)
        return check()

    return in_child(give_up_privilege_and_check)


def make_read_only(folder: Path) -> None:
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)


def reads_and_refuses(path: Path, workload: Workload, trials: int) -> bool:
    with SqliteStore(path) as store:
        message = refusal(lambda: store.append([a_trial(workload)]))
        return (
            store.read_only
            and len(store.trials(workload.id)) == trials
            and store.best(workload.id) is not None
            and "is read-only" in message
            and "store=…" in message
        )


@pytest.mark.medium
def test_a_store_in_a_read_only_folder_can_be_read(shared_folder: Path) -> None:
    path = shared_folder / "store.db"
    workload = fill(path)
    make_read_only(shared_folder)
    assert unprivileged(lambda: reads_and_refuses(path, workload, trials=1))


@pytest.mark.medium
def test_a_read_only_store_in_a_writable_folder_can_be_read(shared_folder: Path) -> None:
    path = shared_folder / "store.db"
    workload = fill(path)
    path.chmod(0o444)
    shared_folder.chmod(0o777)
    assert unprivileged(lambda: reads_and_refuses(path, workload, trials=1))


@pytest.mark.medium
def test_a_store_in_use_can_be_read_from_a_read_only_folder(shared_folder: Path) -> None:
    path = shared_folder / "store.db"
    workload = fill(path)
    with SqliteStore(path) as writer:
        writer.append([a_trial(workload, {"BM": 2})])
        make_read_only(shared_folder)
        assert unprivileged(lambda: reads_and_refuses(path, workload, trials=2))


@pytest.mark.medium
def test_results_in_a_log_that_cannot_be_read_are_not_passed_over(shared_folder: Path) -> None:
    path = shared_folder / "store.db"
    workload = fill(path)

    def append_and_leave_the_log() -> bool:
        SqliteStore(path).append([a_trial(workload, {"BM": 2})])
        os._exit(0)

    assert in_child(append_and_leave_the_log)
    (shared_folder / "store.db-shm").unlink()
    make_read_only(shared_folder)
    assert unprivileged(lambda: "store.db-wal" in refusal(lambda: SqliteStore(path)))


@pytest.mark.medium
def test_without_the_right_to_read_it_says_so(shared_folder: Path) -> None:
    path = shared_folder / "store.db"
    fill(path)
    path.chmod(0)
    assert unprivileged(lambda: "be opened" in refusal(lambda: SqliteStore(path)))


@pytest.mark.medium
def test_a_folder_that_cannot_be_written_gets_no_new_store(shared_folder: Path) -> None:
    make_read_only(shared_folder)
    path = shared_folder / "store.db"
    assert unprivileged(lambda: "store=…" in refusal(lambda: SqliteStore(path)))


@pytest.mark.medium
def test_running_out_of_room_is_said_and_loses_nothing_committed(
    path: Path, workload: Workload
) -> None:
    """A limit on the size of files stands in for the end of the disk."""

    def append_until_refused() -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        stored = 1
        with SqliteStore(path) as store:
            try:
                while stored < 100:
                    store.append([a_trial(workload, {"BM": stored}, facts={"x": "y" * 30_000})])
                    stored += 1
            except StoreError as error:
                kept = len(store.trials(workload.id))
                return str(path) in str(error) and 1 < stored == kept
        return False

    assert in_child(append_until_refused)
    with SqliteStore(path) as store:
        assert len(store.trials(workload.id)) > 1


def test_a_full_disk_is_called_one(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
        db.execute("PRAGMA max_page_count = 3")
        with pytest.raises(sqlite3.OperationalError) as caught:
            db.execute("INSERT INTO t VALUES (randomblob(100000))")
    message = str(store_error(path, caught.value))
    assert message.startswith(f"store {path} is on a full disk")
    assert "some space" in message


@pytest.mark.parametrize(
    "damage",
    [
        "facts = '{'",
        "facts = '[]'",
        "config = '3'",
        "status = 'splendid'",
        "timing = '{}'",
        "samples = x'00'",
        "cost = 'null'",
    ],
)
def test_a_trial_that_cannot_be_read_is_named(path: Path, workload: Workload, damage: str) -> None:
    run_sql(path, f"UPDATE trials SET {damage}")
    with SqliteStore(path) as store:
        with pytest.raises(StoreError, match=r"trial row 1 is not valid.*whet store gc"):
            store.trials(workload.id)
        with pytest.raises(StoreError, match="trial row 1"):
            store.best(workload.id)
        assert store.gc(kernel="matmul").trials == 1


@pytest.mark.parametrize(
    "damage",
    [
        """config = replace(config, '64', '65')""",
        "median_ns = median_ns + 1",
        "samples = zeroblob(length(samples))",
        "status = 'run_error'",
    ],
)
def test_a_best_that_contradicts_its_own_copies_is_damage(
    path: Path, workload: Workload, damage: str
) -> None:
    with SqliteStore(path) as store:
        run_sql(path, f"UPDATE trials SET {damage}")
        with pytest.raises(StoreError, match="is damaged: trial row 1"):
            store.best(workload.id)


def test_a_schema_that_is_no_text_is_said_to_be_damaged(path: Path, workload: Workload) -> None:
    run_sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    body = path.read_bytes()
    path.write_bytes(body.replace(b"CREATE TABLE trials", b"CREATE T\x80BLE trials"))
    with pytest.raises(StoreError, match=r"store .* is damaged .*backup"):
        SqliteStore(path)


def test_a_name_that_is_no_text_is_refused(path: Path, workload: Workload) -> None:
    with SqliteStore(path) as store, pytest.raises(StoreError, match="which is not text"):
        store.workloads("\udcff")


def test_workloads_and_runs_that_cannot_be_read_are_named(path: Path, workload: Workload) -> None:
    with SqliteStore(path) as store:
        store.save_run(a_run(workload))
        run_sql(path, "UPDATE runs SET body = '{}'")
        with pytest.raises(StoreError, match="run row 1 is not valid"):
            store.runs(workload.id)
        run_sql(path, "UPDATE workloads SET body = 'x'")
        with pytest.raises(StoreError, match="workload row 1 is not valid"):
            store.workloads()


def test_a_damaged_file_is_said_to_be_one(path: Path) -> None:
    workload = a_workload()
    with SqliteStore(path) as store:
        store.put_workload(workload)
        store.append(a_trial(workload, {"BM": n}) for n in range(300))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 8192))
    with (
        pytest.raises(StoreError, match=r"store .*store.db is damaged.*backup"),
        SqliteStore(path) as store,
    ):
        store.trials(workload.id)

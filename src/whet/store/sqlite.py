"""`SqliteStore`: one file, many processes. `MemoryStore`: for runs that leave nothing behind.

Why it is so: docs/decisions/stores.md.
"""

from __future__ import annotations

import json
import os
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from whet.core.errors import StoreError
from whet.core.trial import Trial
from whet.store.beside import FolderModels, identity_of, lock_folder_of, size_of
from whet.store.connecting import SCHEMA_VERSION, connect, create, stored_version
from whet.store.faults import (
    closed_error,
    file_read_only_error,
    gone_error,
    read_only_error,
    store_error,
)
from whet.store.protocol import LOCK
from whet.store.rows import Row, RowReader
from whet.store.sql import Session, SqlStore
from whet.store.statements import LITE

if TYPE_CHECKING:
    from whet.store.sweeping import GcReport, Sweep, SweepPlan

T = TypeVar("T")


class SqliteSession(Session):
    def listed(self, numbers: Sequence[int]) -> str:
        return json.dumps(numbers)

    def numbers(self, listed: str) -> list[int]:
        found: list[int] = json.loads(listed)
        return found

    def insert(
        self,
        trials: Sequence[Trial],
        rows: Sequence[Row],
        standing: Collection[str] | None = None,
        signatures: Mapping[str, str] | None = None,
    ) -> int:
        (before,) = self.rows("LAST_TRIAL")[0]
        changes = self.db.total_changes
        self.db.executemany(self.sql.INSERT_TRIAL, rows)
        added = int(self.db.total_changes - changes)
        if standing is None:
            self.change("SUPERSEDE_LATEST", before=before)
            return added
        self.change("FIRST_LATEST", before=before)
        kept = set(standing)
        taken = [
            {"workload": trial.workload_id, "id": trial.id, "before": before}
            for trial in trials
            if trial.id in kept
        ]
        self.db.executemany(self.sql.TAKE_LATEST, taken)
        return added


class SqliteTables(SqlStore):
    """One connection serves all threads of a process, one at a time."""

    _path: Path
    _db: sqlite3.Connection | None
    _read_only: bool

    @property
    def read_only(self) -> bool:
        return self._read_only

    def close(self) -> None:
        with LOCK:
            if self._db is not None:
                self._db.close()
                self._db = None

    def read(self, work: Callable[[SqliteSession], T], *, one_state: bool = False) -> T:
        with self._guarded() as db:
            if not one_state:
                return work(self._session(db))
            with _transaction(db, "BEGIN"):
                return work(self._session(db))

    def write(self, work: Callable[[SqliteSession], T]) -> T:
        """IMMEDIATE: a transaction that begins by reading may be refused the lock later on."""
        with self._guarded() as db:
            self.refuse_if_read_only()
            self._refuse_if_gone()
            with _transaction(db, "BEGIN IMMEDIATE"):
                return work(self._session(db))

    def sweep(self, sweep: Sweep, *, dry_run: bool) -> GcReport:
        from whet.store.sweeping import joined_reports, plan_of_file

        if dry_run:
            return self.read(lambda session: plan_of_file(session, sweep), one_state=True).report
        report = again = self._swept(sweep)
        most = sweep.max_bytes
        # What was weighed is not quite what the file then comes to.
        while most is not None and report.bytes_left > most and again.workloads:
            again = self._swept(sweep)
            report = joined_reports(report, again)
        return report

    def _swept(self, sweep: Sweep) -> GcReport:
        from whet.store.sweeping import file_bytes, plan_of_file, shrink

        def work(session: SqliteSession) -> tuple[SweepPlan, int]:
            plan, size = plan_of_file(session, sweep), file_bytes(session.db)
            plan.carry_out(session)
            return plan, size

        plan, size = self.write(work)
        beside = self.read(lambda session: self._remove_beside(session, plan))
        freed, left = 0, plan.report.bytes_left
        if plan.anything:
            freed, left = self.read(lambda session: shrink(session.db, size))
        return replace(plan.report, bytes_freed=freed + beside, bytes_left=left, dry_run=False)

    def _remove_beside(self, session: SqliteSession, plan: SweepPlan) -> int:
        """What is kept beside the file of what is gone; how many bytes that was."""
        return 0

    def _session(self, db: sqlite3.Connection) -> SqliteSession:
        return SqliteSession(db, LITE, RowReader(self.location))

    @abstractmethod
    def _connection(self) -> sqlite3.Connection: ...

    def _refuse_if_gone(self) -> None:
        return

    @contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        with LOCK:
            try:
                yield self._connection()
            except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:
                raise store_error(self._path, error) from error
            except UnicodeEncodeError as error:
                raise StoreError(
                    f"store {self._path} cannot hold {error.object!r}, which is not text; use "
                    "valid UTF-8"
                ) from None


class SqliteStore(SqliteTables):
    """Opens, and where there is none makes, the store at `path`.

    A file or folder that cannot be written gives a store that is `read_only` without having been
    asked for. `busy_s` is how long to wait for another process that is writing.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, busy_s: float = 10.0) -> None:
        self._path = Path(path).absolute()
        self._busy_s = busy_s
        with LOCK:
            self._pid = os.getpid()
            self._db, self._read_only = connect(self._path, read_only=read_only, busy_s=busy_s)
            self._file = identity_of(self._path)
            self._is_old = stored_version(self._db) < SCHEMA_VERSION

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def lock_folder(self) -> Path | None:
        return lock_folder_of(self._path) if self._path.is_file() else None

    @property
    def models(self) -> FolderModels:
        return FolderModels(f"{self._path}.models", read_only=self._read_only)

    @property
    def size_bytes(self) -> int | None:
        return size_of(self._path)

    @property
    def replaced(self) -> bool:
        return identity_of(self._path) != self._file

    def refuse_if_read_only(self) -> None:
        if self._read_only:
            raise file_read_only_error(self._path)

    def _refuse_if_gone(self) -> None:
        """What is written to a file without a name is lost as soon as it is closed."""
        if self.replaced:
            raise gone_error(self._path)

    def _remove_beside(self, session: SqliteSession, plan: SweepPlan) -> int:
        return plan.remove_beside(session, self._path)

    def _connection(self) -> sqlite3.Connection:
        """In a forked child: a connection of its own.

        The inherited one is idle (see `LOCK`) and has to be closed first. Left open, SQLite would
        take the parent's locks for locks of this process, take none for the new connection, and
        lose what it writes as soon as the parent closes the file.
        """
        if self._db is None:
            raise closed_error(self.location)
        if self._pid != os.getpid():
            self._refuse_if_gone()  # or else another one would be made
            self._db.close()
            self._connect_again()
        elif self._is_old and stored_version(self._db) == SCHEMA_VERSION:
            self._db.close()  # somebody has upgraded it since
            self._connect_again()
        return self._db

    def _connect_again(self) -> None:
        self._db, _ = connect(self._path, read_only=self._read_only, busy_s=self._busy_s)
        self._pid = os.getpid()
        self._is_old = stored_version(self._db) < SCHEMA_VERSION


class MemoryStore(SqliteTables):
    """Gone with the process, and a forked child has its own copy."""

    _path = Path(":memory:")

    def __init__(self, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA foreign_keys = ON")
        create(self._db)

    @property
    def location(self) -> str:
        return ":memory:"

    def refuse_if_read_only(self) -> None:
        if self._read_only:
            raise read_only_error(self.location)

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError(f"store {self.location} is closed; open a new one")
        return self._db


@contextmanager
def _transaction(db: sqlite3.Connection, begin: str) -> Iterator[Any]:
    try:
        db.execute(begin)
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise

"""Stores in tables. `SqlStore` is what all have in common, whatever database they are in: its
methods are those of `Session`, each in one piece of work. `SqliteStore` is one file for many
processes, `MemoryStore` for runs that leave nothing behind; `store/postgres/` is on a server.

Why it is so: docs/decisions/stores.md.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from whet.core.errors import StoreError
from whet.core.run import Run
from whet.core.shown import drawn
from whet.core.status import Status
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.beside import FolderModels, lock_folder_of
from whet.store.connecting import SCHEMA_VERSION, connect, create, stored_version
from whet.store.faults import (
    closed_error,
    file_read_only_error,
    gone_error,
    read_only_error,
    store_error,
    unknown_run,
    unknown_workload,
)
from whet.store.matching import nearest
from whet.store.protocol import LOCK, Match, Pick, Store, StoreReader, WorkloadSummary
from whet.store.rows import (
    Row,
    RowReader,
    in_its_place,
    mark_of,
    mark_values,
    miss_of,
    miss_values,
    run_body,
    timeline_of,
    trial_values,
    workload_body,
)
from whet.store.statements import LITE, Statements

if TYPE_CHECKING:
    from whet.core.miss import Miss
    from whet.core.process import Mark
    from whet.core.timeline import Timeline
    from whet.store.merging import Contents, MergeReport
    from whet.store.sweeping import GcReport, Sweep, SweepPlan

T = TypeVar("T")


class Session:
    """A connection while one piece of work is done with it. Its statements see one state, or stand
    each for itself, as the work asked for; what writes is in one transaction."""

    # Whether of a workload that is known no more may be written than its origin.
    only_origins = False

    def __init__(self, db: Any, sql: Statements, reader: RowReader) -> None:
        self.db = db
        self.sql = sql
        self.reader = reader

    @property
    def location(self) -> str:
        return self.reader.location

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        """What the statement of this name selects."""
        found: list[Row] = self.db.execute(getattr(self.sql, name), values).fetchall()
        return found

    def row(self, name: str, /, **values: Any) -> Row | None:
        found: Row | None = self.db.execute(getattr(self.sql, name), values).fetchone()
        return found

    def change(self, name: str, /, **values: Any) -> int:
        """How many rows it changed."""
        return int(self.db.execute(getattr(self.sql, name), values).rowcount)

    def listed(self, numbers: Sequence[int]) -> Any:
        """As the database takes a list of numbers."""
        raise NotImplementedError

    def numbers(self, listed: Any) -> list[int]:
        """And back."""
        raise NotImplementedError

    def insert(
        self,
        trials: Sequence[Trial],
        rows: Sequence[Row],
        standing: Collection[str] | None = None,
        signatures: Mapping[str, str] | None = None,
    ) -> int:
        """Inserts those that are new, and returns how many those were. Each is then its config's
        latest; or, with `standing`, those with these ids are, unless a younger one is. `rows` are
        the `trial_values`; `signatures` are by id, where they were made before."""
        raise NotImplementedError

    def workload(self, workload_id: str) -> Workload | None:
        return self.reader.one(
            self.row("WORKLOAD", workload=workload_id), self.reader.workload_from
        )

    def workloads_with_ok(self, kernel: str) -> list[Workload]:
        rows = self.rows("WORKLOADS_WITH_OK", kernel=kernel)
        return self.reader.each(rows, self.reader.workload_from)

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        rows = self.rows("ALL_TRIALS" if all else "LATEST_TRIALS", workload=workload_id)
        return self.reader.trials(rows, workload_id)

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        row = self.row("LATEST_TRIAL", workload=workload_id, config=config_id)
        found = self.reader.trials([] if row is None else [row], workload_id)
        return found[0] if found else None

    def pick(self, workload_id: str) -> Pick | None:
        def working(row: Row, location: str) -> Trial:
            trial = self.reader.trial_from(row, workload_id)
            if trial.status is not Status.OK:
                raise StoreError(
                    f"store {location} is damaged: trial row {row[0]} is listed as working but "
                    f"has status {trial.status}; restore the store from a backup"
                )
            return trial

        row = self.row("PICK", workload=workload_id)
        best = None if row is None else self.reader.one(row[:-1], working)
        if row is None or (best is None and self.sql.promoted):  # this one or none
            return None
        if best is None:
            return self._readable_pick(workload_id)
        if row[-1] is None:
            return Pick(best)
        rivals = [self.row("TRIAL", n=n) for n in self.numbers(row[-1])]
        there = [rival for rival in rivals if rival is not None]
        return Pick(best, tuple(self.reader.each(there, working)))

    def _readable_pick(self, workload_id: str) -> Pick | None:
        """Where the row of the best cannot be read, and others can."""
        from whet.store.picking import picked

        latest = {trial.config.id: trial for trial in self.trials(workload_id)}
        return picked(self.runs(workload_id), self.trials(workload_id, all=True), latest)

    def runs(self, workload_id: str) -> list[Run]:
        return self.reader.runs(self.rows("RUNS", workload=workload_id))

    def run(self, run_id: str) -> Run | None:
        found = self.reader.runs(self.rows("RUN", id=run_id))
        return found[0] if found else None

    def summaries(self, kernel: str | None) -> list[WorkloadSummary]:
        def split(row: Row, location: str) -> tuple[Workload, Row]:
            return self.reader.workload_from(row[:3], location), row[3:]

        read = self.reader.each(self.rows("SUMMARIES", kernel=kernel), split)
        return [self.summary(workload, *counts) for workload, counts in read]

    def summary(
        self, workload: Workload, trials: int, configs: int, ok: int, active: float
    ) -> WorkloadSummary:
        pick = self.pick(workload.id)
        if pick is None:
            return WorkloadSummary(workload, trials, configs, ok, active, None)
        return WorkloadSummary(workload, trials, configs, ok, active, pick.trial, pick.rivals)

    def match(self, workload: Workload) -> Match | None:
        same = self.workload(workload.id)
        if same is not None:
            return Match("strict", same)
        return nearest(workload, self.workloads_with_ok(workload.kernel))

    def lock(self, workload_ids: Iterable[str]) -> None:
        """Raises for a workload that is not known. Later writers to these wait until this
        transaction ends."""
        for id in workload_ids:
            if self.row("WORKLOAD", workload=id) is None:
                raise unknown_workload(id, self.location)

    def put_workload(self, workload: Workload) -> int:
        body = workload_body(workload)
        added = self.change(
            "PUT_WORKLOAD",
            workload=workload.id,
            kernel=workload.kernel,
            added=time.time(),
            body=body,
        )
        if not added and workload.origin:
            self._put_origin(workload, body)
        return added

    def _put_origin(self, workload: Workload, body: str) -> None:
        row = self.row("WORKLOAD", workload=workload.id)
        if row is None or row[1] == body:
            return
        self.lock([workload.id])
        row = self.row("WORKLOAD", workload=workload.id)
        assert row is not None
        stored = self.reader.workload_from(row, self.location)
        known = replace(stored, origin=workload.origin.over(stored.origin))
        if known.origin != stored.origin:
            # Of another text than ours more than the origin would change.
            if self.only_origins and workload_body(stored) != row[1]:
                return
            self.change("PUT_BODY", body=workload_body(known), workload=workload.id)

    def append(self, trials: Sequence[Trial], rows: Sequence[Row]) -> int:
        if not trials:
            return 0
        moments = _moments(trials)
        self.lock(moments)
        added = self.insert(trials, rows)
        self._appended(moments, trials)
        return added

    def take_trials(
        self, trials: Sequence[Trial], standing: Collection[str], signatures: Mapping[str, str]
    ) -> int:
        """Those that come from elsewhere and late: see `insert`."""
        if not trials:
            return 0
        moments = _moments(trials)
        self.lock(moments)
        rows = [trial_values(trial) for trial in trials]
        added = self.insert(trials, rows, standing, signatures)
        self._appended(moments, trials)
        return added

    def _appended(self, moments: Mapping[str, float], trials: Sequence[Trial]) -> None:
        """What a run appends counts for contested picks when the run has ended: soon, and once."""
        for workload_id, moment in moments.items():
            self.change("TOUCH", moment=moment, workload=workload_id)
            if self.row("HAS_PICK", workload=workload_id) is not None:
                ids = {trial.run_id for trial in trials if trial.workload_id == workload_id}
                if any(self.row("IS_RUNNING", id=id) is None for id in ids):
                    self.decide(workload_id)

    def save_run(self, run: Run, signature: str | None = None) -> None:
        id_ = run.workload.id
        self.put_workload(run.workload)
        self.lock([id_])
        merged = self.row("ANY_TAKEN", workload=id_) is not None
        before = self.row("RUN", id=run.id)
        if before is not None:
            run = in_its_place(run, before, self.location)
        elif merged:
            from whet.store.picking import placed

            run = placed(run, self.runs(id_))
        self.change("SAVE_RUN", **self.run_values(run, signature))
        self.change("TOUCH", moment=run.ended, workload=id_)
        if merged:
            self.decide(id_)

    def run_values(self, run: Run, signature: str | None) -> dict[str, Any]:
        return {
            "id": run.id,
            "workload": run.workload.id,
            "started": run.started,
            "outcome": str(run.outcome),
            "best_id": None if run.best is None else run.best.id,
            "body": run_body(run),
        }

    def sign(self, thing: Trial | Run) -> str | None:
        """None where nobody signs."""
        return None

    def save_timeline(self, run_id: str, packed: bytes) -> None:
        if self.row("RUN", id=run_id) is None:
            raise unknown_run(run_id, self.location)
        self.change("SAVE_TIMELINE", run=run_id, body=packed)

    def miss(self, miss: Miss) -> bool:
        return self.change("MISS", **miss_values(miss)) > 0

    def forget_missed(self, workload_ids: Iterable[str]) -> int:
        return sum(self.change("FORGET_MISSED", workload=id) for id in workload_ids)

    def mark(self, mark: Mark) -> None:
        self.lock([mark.workload_id])
        self.change("PUT_MARK", **mark_values(mark))

    def take(self, part: Contents, rows: Sequence[Row], packed: Mapping[str, bytes]) -> MergeReport:
        """Merges one workload; `rows` are of its trials, `packed` its timelines."""
        from whet.store.merging import MergeReport, merged_pick

        id_ = part.workload.id
        before = self.pick(id_)
        workloads = self.put_workload(part.workload)
        self.lock([id_])
        trials = self.insert(part.trials, rows, part.standing) if rows else 0
        known = {id for (id,) in self.rows("RUN_IDS", workload=id_)}
        for run in part.runs:
            self.change("TAKE_RUN", **self.run_values(run, self.sign(run)))
        for run_id, body in packed.items():
            self.change("TAKE_TIMELINE", run=run_id, body=body)
        self.decide(id_)
        if part.active is not None:
            self.change("TOUCH", moment=part.active, workload=id_)
        runs = sum(run.id not in known for run in part.runs)
        picks = merged_pick(part.workload, before, self.pick(id_))
        return MergeReport(trials, runs, workloads, tuple(picks))

    def decide(self, workload_id: str) -> None:
        """Keeps what follows from runs and trials of several stores, where they are of several."""
        from whet.store.picking import decide, lineages

        runs = self.runs(workload_id)
        divided, decision = lineages(runs), None
        if len(divided) > 1:
            decision = decide(runs, self.trials(workload_id, all=True), divided)
        if decision is None:
            self.change("DELETE_PICK", workload=workload_id)
            return
        numbers: dict[str, int] = dict(self.rows("TRIAL_NUMBERS", workload=workload_id))
        self.change(
            "PUT_PICK",
            workload=workload_id,
            trial=numbers[decision.pick.trial.id],
            rivals=self.listed([numbers[rival.id] for rival in decision.pick.rivals]),
            kept=self.listed(sorted(numbers[id] for id in decision.kept)),
        )


class SqlStore(Store):
    """What one database adds is `read`, `write` and `sweep`."""

    _repr_html_ = drawn

    @abstractmethod
    def read(self, work: Callable[[Session], T], *, one_state: bool = False) -> T:
        """What `work` makes of a session."""

    @abstractmethod
    def write(self, work: Callable[[Session], T]) -> T:
        """What `work` makes of a session in one transaction; raises where it is `read_only`."""

    @abstractmethod
    def sweep(self, sweep: Sweep, *, dry_run: bool) -> GcReport: ...

    @abstractmethod
    def refuse_if_read_only(self) -> None: ...

    def put_workload(self, workload: Workload) -> None:
        self.write(lambda to: to.put_workload(workload))

    def append(self, trials: Iterable[Trial]) -> int:
        batch = list(trials)
        # Before the transaction: while one process encodes, another can write.
        rows = [trial_values(trial) for trial in batch]
        return self.write(lambda to: to.append(batch, rows))

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        return self.read(lambda session: session.trials(workload_id, all=all))

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        return self.read(lambda session: session.latest(workload_id, config_id))

    def pick(self, workload_id: str) -> Pick | None:
        return self.read(lambda session: session.pick(workload_id))

    def save_run(self, run: Run) -> None:
        self.write(lambda to: to.save_run(run, to.sign(run)))

    def runs(self, workload_id: str) -> list[Run]:
        return self.read(lambda session: session.runs(workload_id))

    def run(self, run_id: str) -> Run | None:
        return self.read(lambda session: session.run(run_id))

    def save_timeline(self, run_id: str, timeline: Timeline) -> None:
        packed = timeline.packed()
        self.write(lambda to: to.save_timeline(run_id, packed))

    def timeline(self, run_id: str) -> Timeline | None:
        def work(session: Session) -> Timeline | None:
            return session.reader.one(session.row("TIMELINE", run=run_id), timeline_of)

        return self.read(work)

    def miss(self, miss: Miss) -> bool:
        return self.write(lambda to: to.miss(miss))

    def missed(self, kernel: str | None = None, *, tuned: bool = False) -> list[Miss]:
        def work(session: Session) -> list[Miss]:
            rows = session.rows("MISSED", kernel=kernel, tuned=tuned)
            return session.reader.each(rows, miss_of)

        return self.read(work)

    def forget_missed(self, workload_ids: Iterable[str]) -> int:
        ids = list(workload_ids)
        return self.write(lambda to: to.forget_missed(ids))

    def mark(self, mark: Mark) -> None:
        self.write(lambda to: to.mark(mark))

    def unmark(self, run_id: str) -> None:
        self.write(lambda to: to.change("DELETE_MARK", run=run_id))

    def marks(self, workload_id: str) -> list[Mark]:
        def work(session: Session) -> list[Mark]:
            return session.reader.each(session.rows("MARKS", workload=workload_id), mark_of)

        return self.read(work)

    def workload(self, workload_id: str) -> Workload | None:
        return self.read(lambda session: session.workload(workload_id))

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        return self.read(lambda session: session.summaries(kernel), one_state=True)

    def match(self, workload: Workload) -> Match | None:
        return self.read(lambda session: session.match(workload), one_state=True)

    def gc(
        self,
        *,
        older_than_s: float | None = None,
        superseded: bool = False,
        kernel: str | None = None,
        workloads: Collection[str] | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
    ) -> GcReport:
        from whet.store.sweeping import Sweep

        asked = Sweep.of(older_than_s, superseded, kernel, workloads, max_bytes)
        return self.sweep(asked, dry_run=dry_run)

    def merge(self, other: StoreReader) -> MergeReport:
        from whet.store.merging import contents, take_missed

        self.refuse_if_read_only()
        report = self.take(contents(other))
        take_missed(self, other)
        return report

    def take(self, parts: Iterable[Contents]) -> MergeReport:
        """Merges workloads, each in a transaction of its own."""
        from whet.store.merging import MergeReport

        total = MergeReport()
        for part in parts:
            total = total.plus(self._take(part))
        return total

    def _take(self, part: Contents) -> MergeReport:
        rows = [trial_values(trial) for trial in part.trials]
        packed = {run_id: timeline.packed() for run_id, timeline in part.timelines.items()}
        return self.write(lambda to: to.take(part, rows, packed))


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
    """One session serves all threads of a process, one at a time."""

    _path: Path
    _db: sqlite3.Connection | None
    _session: SqliteSession | None = None
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
        with self._guarded() as session:
            if not one_state:
                return work(session)
            with _transaction(session.db, "BEGIN"):
                return work(session)

    def write(self, work: Callable[[SqliteSession], T]) -> T:
        """IMMEDIATE: a transaction that begins by reading may be refused the lock later on."""
        with self._guarded() as session:
            self.refuse_if_read_only()
            self._refuse_if_gone()
            with _transaction(session.db, "BEGIN IMMEDIATE"):
                return work(session)

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

    @abstractmethod
    def _connection(self) -> sqlite3.Connection: ...

    def _refuse_if_gone(self) -> None:
        return

    @contextmanager
    def _guarded(self) -> Iterator[SqliteSession]:
        with LOCK:
            try:
                db = self._connection()
                if self._session is None or self._session.db is not db:
                    self._session = SqliteSession(db, LITE, RowReader(self.location))
                yield self._session
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
        self._read_only = read_only
        with LOCK:
            self._read_only = self._connect()
            self._file = self._file_now()

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
        try:
            return os.path.getsize(self._path)
        except OSError:
            return None

    @property
    def replaced(self) -> bool:
        return self._file_now() != self._file

    def _file_now(self) -> tuple[int, int] | None:
        """Which file is there; None where there is none."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

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
            self._connect()
        elif self._is_old and stored_version(self._db) == SCHEMA_VERSION:
            self._db.close()  # somebody has upgraded it since
            self._connect()
        return self._db

    def _connect(self) -> bool:
        """Whether it can only be read."""
        self._db, only_read = connect(self._path, read_only=self._read_only, busy_s=self._busy_s)
        self._pid = os.getpid()
        self._is_old = stored_version(self._db) < SCHEMA_VERSION
        return only_read


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


def _moments(trials: Iterable[Trial]) -> dict[str, float]:
    """By workload, when its newest trial was made."""
    found: dict[str, float] = {}
    for trial in trials:
        known = found.get(trial.workload_id, trial.created)
        found[trial.workload_id] = max(known, trial.created)
    return found

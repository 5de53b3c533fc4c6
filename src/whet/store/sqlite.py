"""`SqliteStore`: one file, many processes."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.errors import StoreError
from whet.core.run import Run
from whet.core.shown import drawn
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store import statements as sql
from whet.store.beside import FolderModels, identity_of, lock_folder_of, size_of
from whet.store.connecting import (
    FIRST_WITH_MARKS,
    FIRST_WITH_MISSED,
    FIRST_WITH_PICKS,
    FIRST_WITH_TIMELINES,
    SCHEMA_VERSION,
    connect,
    stored_version,
)
from whet.store.faults import (
    gone_error,
    read_only_error,
    store_error,
    unknown_run,
    unknown_workload,
)
from whet.store.matching import nearest
from whet.store.picking import placed
from whet.store.protocol import LOCK, Match, Pick, Store, StoreReader, WorkloadSummary
from whet.store.rows import (
    Row,
    in_its_place,
    mark_of,
    mark_values,
    miss_of,
    miss_values,
    run_body,
    runs_of,
    timeline_of,
    trial_of,
    trial_values,
    workload_body,
    workload_of,
)
from whet.store.sqlite_picking import pick_of, write_decision

if TYPE_CHECKING:
    from whet.core.miss import Miss
    from whet.core.process import Mark
    from whet.core.timeline import Timeline
    from whet.store.merging import Contents, MergedPick, MergeReport
    from whet.store.sweeping import GcReport, Sweep


class SqliteStore(Store):
    """Opens, and where there is none makes, the store at `path`.

    One connection serves all threads of a process, one at a time. A file or folder that cannot
    be written gives a store that is `read_only` without having been asked for. `busy_s` is how
    long to wait for another process that is writing.
    """

    _repr_html_ = drawn

    def __init__(self, path: str | Path, *, read_only: bool = False, busy_s: float = 10.0) -> None:
        self._path = Path(path).absolute()
        self._busy_s = busy_s
        with LOCK:
            self._pid = os.getpid()
            self._db: sqlite3.Connection | None
            self._db, self._read_only = connect(self._path, read_only=read_only, busy_s=busy_s)
            self._file = identity_of(self._path)
            self._is_old = stored_version(self._db) < SCHEMA_VERSION

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def read_only(self) -> bool:
        return self._read_only

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

    def put_workload(self, workload: Workload) -> None:
        with self._writing() as db:
            self._put_workload(db, workload)

    def append(self, trials: Iterable[Trial]) -> int:
        batch = list(trials)
        # Before the transaction: while one process encodes, another can write.
        rows = [trial_values(trial) for trial in batch]
        moments: dict[str, float] = {}
        for trial in batch:
            known = moments.get(trial.workload_id, trial.created)
            moments[trial.workload_id] = max(known, trial.created)
        with self._writing() as db:
            for workload_id in moments:
                if db.execute(sql.WORKLOAD_N, (workload_id,)).fetchone() is None:
                    raise unknown_workload(workload_id, self.location)
            before = self._last_trial(db)
            added = self._insert_trials(db, rows)
            db.execute(sql.SUPERSEDE_LATEST, (before,))
            db.executemany(sql.TOUCH, [(at, at, workload) for workload, at in moments.items()])
            for workload_id in moments:
                self._decide_unless_running(db, workload_id, batch)
            return added

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        with self._guarded() as db:
            rows = db.execute(sql.ALL_TRIALS if all else sql.LATEST_TRIALS, (workload_id,))
            return [_read_trial(row, workload_id, self.location) for row in rows.fetchall()]

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        with self._guarded() as db:
            row = db.execute(sql.LATEST_TRIAL, (workload_id, config_id)).fetchone()
            return None if row is None else trial_of(row, workload_id, self.location)

    def best(self, workload_id: str) -> Trial | None:
        found = self.pick(workload_id)
        return None if found is None else found.trial

    def pick(self, workload_id: str) -> Pick | None:
        with self._guarded() as db:
            return self._pick(db, workload_id)

    def save_run(self, run: Run) -> None:
        with self._writing() as db:
            self._put_workload(db, run.workload)
            merged = db.execute(sql.ANY_TAKEN, (run.workload.id,)).fetchone() is not None
            before = db.execute(sql.RUN, (run.id,)).fetchone()
            if before is not None:
                run = in_its_place(run, before, self.location)
            elif merged:
                run = placed(run, self._runs(db, run.workload.id))
            db.execute(sql.SAVE_RUN, _run_values(run))
            ended = run.ended
            db.execute(sql.TOUCH, (ended, ended, run.workload.id))
            if merged:
                self._decide(db, run.workload.id)

    def runs(self, workload_id: str) -> list[Run]:
        with self._guarded() as db:
            return self._runs(db, workload_id)

    def run(self, run_id: str) -> Run | None:
        with self._guarded() as db:
            found = runs_of(db.execute(sql.RUN, (run_id,)).fetchall(), self.location)
            return found[0] if found else None

    def save_timeline(self, run_id: str, timeline: Timeline) -> None:
        body = timeline.packed()
        with self._writing() as db:
            if db.execute(sql.RUN, (run_id,)).fetchone() is None:
                raise unknown_run(run_id, self.location)
            db.execute(sql.SAVE_TIMELINE, (run_id, body))

    def timeline(self, run_id: str) -> Timeline | None:
        with self._reading() as db:
            if stored_version(db) < FIRST_WITH_TIMELINES:
                return None
            row = db.execute(sql.TIMELINE, (run_id,)).fetchone()
            return None if row is None else timeline_of(row, self.location)

    def miss(self, miss: Miss) -> bool:
        values = miss_values(miss)
        with self._writing() as db:
            return db.execute(sql.MISS, values).rowcount > 0

    def missed(self, kernel: str | None = None, *, tuned: bool = False) -> list[Miss]:
        with self._reading() as db:
            if stored_version(db) < FIRST_WITH_MISSED:
                return []
            rows = db.execute(sql.MISSED, {"kernel": kernel, "tuned": tuned}).fetchall()
            return [miss_of(row, self.location) for row in rows]

    def forget_missed(self, workload_ids: Iterable[str]) -> int:
        ids = [(id,) for id in workload_ids]
        with self._writing() as db:
            return db.executemany(sql.FORGET_MISSED, ids).rowcount

    def mark(self, mark: Mark) -> None:
        values = mark_values(mark)
        with self._writing() as db:
            if db.execute(sql.WORKLOAD_N, (mark.workload_id,)).fetchone() is None:
                raise unknown_workload(mark.workload_id, self.location)
            db.execute(sql.PUT_MARK, values)

    def unmark(self, run_id: str) -> None:
        with self._writing() as db:
            db.execute(sql.DELETE_MARK, (run_id,))

    def marks(self, workload_id: str) -> list[Mark]:
        with self._reading() as db:
            if stored_version(db) < FIRST_WITH_MARKS:
                return []
            rows = db.execute(sql.MARKS, (workload_id,)).fetchall()
            return [mark_of(row, self.location) for row in rows]

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        with self._reading() as db:
            rows = db.execute(sql.SUMMARIES, {"kernel": kernel}).fetchall()
            return [self._summary(db, row) for row in rows]

    def match(self, workload: Workload) -> Match | None:
        with self._reading() as db:
            same = db.execute(sql.WORKLOAD, (workload.id,)).fetchone()
            if same is not None:
                return Match("strict", workload_of(same, self.location))
            rows = db.execute(sql.WORKLOADS_WITH_OK, (workload.kernel,)).fetchall()
            return nearest(workload, [workload_of(row, self.location) for row in rows])

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
        from whet.store.sqlite_sweeping import joined_reports, plan_sweep
        from whet.store.sweeping import Sweep

        sweep = Sweep.of(older_than_s, superseded, kernel, workloads, max_bytes)
        if dry_run:
            with self._reading() as db:
                return plan_sweep(db, sweep).report
        report = again = self._swept(sweep)
        # What was weighed is not quite what the file then comes to.
        while max_bytes is not None and report.bytes_left > max_bytes and again.workloads:
            again = self._swept(sweep)
            report = joined_reports(report, again)
        return report

    def merge(self, other: StoreReader) -> MergeReport:
        from whet.store.merging import MergeReport, contents, merged_pick, take_missed

        self._refuse_if_read_only()
        workloads = trials = runs = 0
        picks: list[MergedPick] = []
        for part in contents(other):
            rows = [trial_values(trial) for trial in part.trials]
            timelines = [(run_id, kept.packed()) for run_id, kept in part.timelines.items()]
            with self._writing() as db:
                before = self._pick(db, part.workload.id)
                workloads += self._put_workload(db, part.workload)
                trials += self._take_trials(db, part, rows)
                known = {row[0] for row in db.execute(sql.RUN_IDS, (part.workload.id,))}
                runs += sum(run.id not in known for run in part.runs)
                db.executemany(sql.TAKE_RUN, [_run_values(run) for run in part.runs])
                db.executemany(sql.TAKE_TIMELINE, timelines)
                self._decide(db, part.workload.id)
                picks += merged_pick(part.workload, before, self._pick(db, part.workload.id))
                if part.active is not None:
                    db.execute(sql.TOUCH, (part.active, part.active, part.workload.id))
        take_missed(self, other)
        return MergeReport(trials, runs, workloads, tuple(picks))

    def close(self) -> None:
        with LOCK:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _connection(self) -> sqlite3.Connection:
        """In a forked child: a connection of its own.

        The inherited one is idle (see `whet.store.protocol`) and has to be closed first. Left
        open, SQLite would take the parent's locks for locks of this process, take none for the
        new connection, and lose what it writes as soon as the parent closes the file.
        """
        if self._db is None:
            raise StoreError(f"store {self._path} is closed; open it again")
        if self._pid != os.getpid():
            self._refuse_if_gone()  # or else another one would be made
            self._db.close()
            self._db, _ = connect(self._path, read_only=self._read_only, busy_s=self._busy_s)
            self._pid = os.getpid()
        return self._db

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

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Several statements that see one state of the store."""
        with self._guarded() as db, _transaction(db, "BEGIN"):
            yield db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """IMMEDIATE: a transaction that begins by reading may be refused the lock later on."""
        with self._guarded() as db:
            self._refuse_if_read_only()
            self._refuse_if_gone()
            with _transaction(db, "BEGIN IMMEDIATE"):
                yield db

    def _refuse_if_read_only(self) -> None:
        if self._read_only:
            raise read_only_error(self._path)

    def _refuse_if_gone(self) -> None:
        """What is written to a file without a name is lost as soon as it is closed."""
        if self.replaced:
            raise gone_error(self._path)

    def _put_workload(self, db: sqlite3.Connection, workload: Workload) -> int:
        body = workload_body(workload)
        row = (workload.id, workload.kernel, time.time(), body)
        added = db.execute(sql.PUT_WORKLOAD, row).rowcount
        if not added and workload.origin:
            stored = db.execute(sql.WORKLOAD, (workload.id,)).fetchone()
            if stored[1] != body:
                self._put_origin(db, workload, stored)
        return added

    def _put_origin(self, db: sqlite3.Connection, workload: Workload, row: Row) -> None:
        stored = workload_of(row, self.location)
        known = replace(stored, origin=workload.origin.over(stored.origin))
        if known.origin != stored.origin:
            db.execute(sql.PUT_BODY, (workload_body(known), workload.id))

    def _last_trial(self, db: sqlite3.Connection) -> int:
        return int(db.execute(sql.LAST_TRIAL).fetchone()[0])

    def _insert_trials(self, db: sqlite3.Connection, rows: list[Row]) -> int:
        before = db.total_changes
        db.executemany(sql.INSERT_TRIAL, rows)
        return db.total_changes - before

    def _take_trials(self, db: sqlite3.Connection, part: Contents, rows: list[Row]) -> int:
        before = self._last_trial(db)
        added = self._insert_trials(db, rows)
        db.execute(sql.FIRST_LATEST, (before,))
        here = {"workload": part.workload.id, "before": before}
        db.executemany(sql.TAKE_LATEST, [{"id": id, **here} for id in part.standing])
        return added

    def _pick(self, db: sqlite3.Connection, workload_id: str) -> Pick | None:
        # An older version did not look at where runs came from.
        undivided = self._is_old and stored_version(db) < FIRST_WITH_PICKS
        statement = sql.NEWEST_PICK if undivided else sql.PICK
        row = db.execute(statement, {"workload": workload_id}).fetchone()
        return None if row is None else pick_of(row, db, workload_id, self.location)

    def _decide(self, db: sqlite3.Connection, workload_id: str) -> None:
        write_decision(db, workload_id, self._runs(db, workload_id), self.location)

    def _decide_unless_running(
        self, db: sqlite3.Connection, workload_id: str, appended: Iterable[Trial]
    ) -> None:
        """What a run appends counts when the run has ended: that is soon, and once."""
        if db.execute(sql.HAS_PICK, (workload_id,)).fetchone():
            ids = {trial.run_id for trial in appended if trial.workload_id == workload_id}
            if not all(db.execute(sql.IS_RUNNING, (id,)).fetchone() for id in ids):
                self._decide(db, workload_id)

    def _summary(self, db: sqlite3.Connection, row: Row) -> WorkloadSummary:
        n, body, trials, configs, ok, active = row
        workload = workload_of((n, body), self.location)
        pick = self._pick(db, workload.id)
        if pick is None:
            return WorkloadSummary(workload, trials, configs, ok, active, None)
        return WorkloadSummary(workload, trials, configs, ok, active, pick.trial, pick.rivals)

    def _runs(self, db: sqlite3.Connection, workload_id: str) -> list[Run]:
        return runs_of(db.execute(sql.RUNS, (workload_id,)).fetchall(), self.location)

    def _swept(self, sweep: Sweep) -> GcReport:
        from whet.store.sqlite_sweeping import file_bytes, plan_sweep, shrink

        with self._writing() as db:
            plan, size = plan_sweep(db, sweep), file_bytes(db)
            plan.carry_out(db)
        with self._guarded() as db:
            beside = plan.remove_beside(db, self._path)
        freed, left = 0, plan.report.bytes_left
        if plan.anything:
            with self._guarded() as db:
                freed, left = shrink(db, size)
        return replace(plan.report, bytes_freed=freed + beside, bytes_left=left, dry_run=False)


# Who asks for a workload's trials soon asks again, and what a row says never changes.
_read_trial = lru_cache(maxsize=512)(trial_of)


@contextmanager
def _transaction(db: sqlite3.Connection, begin: str) -> Iterator[None]:
    try:
        db.execute(begin)
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _run_values(run: Run) -> Mapping[str, Any]:
    return {
        "id": run.id,
        "workload": run.workload.id,
        "started": run.started,
        "outcome": str(run.outcome),
        "best_id": None if run.best is None else run.best.id,
        "body": run_body(run),
    }

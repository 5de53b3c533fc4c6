"""`PostgresStore`: one server, many hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from whet.core.mark import Mark
from whet.core.miss import Miss
from whet.core.run import Outcome, Run
from whet.core.shown import drawn
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.faults import unknown_run, unknown_workload
from whet.store.lineage import placed
from whet.store.matching import nearest
from whet.store.merging import Contents, contents, merged_pick, take_missed
from whet.store.postgres import schema
from whet.store.postgres.address import PostgresAddress, parse_address
from whet.store.postgres.connections import Connection, ConnectionPool
from whet.store.postgres.faults import read_only_error
from whet.store.postgres.models import TableModels
from whet.store.postgres.records import pick_from, trial_columns, trial_from, write_decision
from whet.store.postgres.statements import Statements
from whet.store.postgres.sweeping import swept
from whet.store.postgres.writers import Contribution, Writer, this_writer
from whet.store.protocol import (
    GcReport,
    Match,
    MergedPick,
    MergeReport,
    Pick,
    Store,
    StoreReader,
    WorkloadSummary,
)
from whet.store.rows import (
    in_its_place,
    mark_of,
    mark_values,
    miss_of,
    miss_values,
    run_body,
    runs_of,
    timeline_of,
    workload_body,
    workload_of,
)
from whet.store.sweeping import Sweep

T = TypeVar("T")


class PostgresStore(Store):
    """Opens the store in the address's namespace, and where there is none makes it, unless it is
    only to be read. Threads use it at once, each with a connection of its own.

    Who writes to a workload locks its row, so that trials of one workload come one after another.
    `folder` is where processes of this host take turns.
    """

    _repr_html_ = drawn

    def __init__(
        self, address: PostgresAddress, *, read_only: bool = False, folder: Path | None = None
    ) -> None:
        self._address = address
        self._folder = folder
        self._read_only = read_only
        self._sql = Statements(address.namespace)
        self._pool = ConnectionPool(address)
        self._writer: int | None = None
        state = self._pool.run(self._state, one_state=False, write=False)
        if not state.version and not read_only:
            self._pool.run(
                lambda db: schema.create(db, address.namespace), one_state=False, write=True
            )
            state = self._pool.run(self._state, one_state=False, write=False)
        schema.check_usable(state, self.location, write=not read_only)

    def __repr__(self) -> str:
        return f"PostgresStore({self.location!r})"

    @property
    def location(self) -> str:
        return self._address.location

    @property
    def read_only(self) -> bool:
        return self._read_only

    @property
    def lock_folder(self) -> Path | None:
        return None if self._folder is None else self._folder / "locks"

    @property
    def models(self) -> TableModels:
        def fetch(name: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            return self._read(lambda db: db.execute(getattr(self._sql, name), values).fetchall())

        def change(name: str, values: tuple[Any, ...]) -> int:
            return self._write(lambda db: db.execute(getattr(self._sql, name), values).rowcount)

        return TableModels(fetch, change)

    @property
    def size_bytes(self) -> int | None:
        rows = self._read(
            lambda db: db.execute(self._sql.SIZE, (self._address.namespace,)).fetchall()
        )
        return int(rows[0][0])

    @classmethod
    def prepare(cls, where: str) -> tuple[int, int]:
        """Makes the store where there is none: its version before, which is 0 then, and now."""

        def work(db: Connection, namespace: str, location: str) -> tuple[int, int]:
            made = schema.create(db, namespace)
            now = schema.state_of(db, namespace).version
            return (0 if made else now), now

        return _in_transaction(parse_address(where), work)

    @classmethod
    def migrate(cls, where: str) -> tuple[int, int]:
        """Takes the store to this version's schema: from which version, to which."""
        return _in_transaction(parse_address(where), schema.migrate)

    def writers(self, workload_id: str) -> dict[str, Writer]:
        """By trial id, who wrote it."""
        rows = self._read(lambda db: db.execute(self._sql.WRITTEN_BY, (workload_id,)).fetchall())
        return {id: Writer(*said) for id, *said in rows}

    def contributions(self) -> list[Contribution]:
        """How much each writer has brought, most first."""
        rows = self._read(lambda db: db.execute(self._sql.BY_WRITER).fetchall())
        return [Contribution(Writer(*row[:4]), int(row[4]), float(row[5])) for row in rows]

    def put_workload(self, workload: Workload) -> None:
        self._write(lambda db: self._put_workload(db, workload))

    def append(self, trials: Iterable[Trial]) -> int:
        batch = list(trials)
        moments: dict[str, float] = {}
        for trial in batch:
            known = moments.get(trial.workload_id, trial.created)
            moments[trial.workload_id] = max(known, trial.created)
        columns = trial_columns(batch)

        def work(db: Connection) -> int:
            self._lock(db, moments)
            added = len(db.execute(self._sql.INSERT_TRIALS, self._signed(columns)).fetchall())
            for workload_id, moment in moments.items():
                db.execute(self._sql.TOUCH, (moment, workload_id))
                self._decide_unless_running(db, workload_id, batch)
            return added

        return self._write(work) if batch else 0

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        statement = self._sql.ALL_TRIALS if all else self._sql.LATEST_TRIALS
        rows = self._read(lambda db: db.execute(statement, {"workload": workload_id}).fetchall())
        return [trial_from(row, workload_id, self.location) for row in rows]

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        asked = {"workload": workload_id, "config": config_id}
        row = self._read(lambda db: db.execute(self._sql.LATEST_TRIAL, asked).fetchone())
        return None if row is None else trial_from(row, workload_id, self.location)

    def best(self, workload_id: str) -> Trial | None:
        found = self.pick(workload_id)
        return None if found is None else found.trial

    def pick(self, workload_id: str) -> Pick | None:
        return self._read(lambda db: pick_from(db, self._sql, workload_id, self.location))

    def save_run(self, run: Run) -> None:
        self._write(lambda db: self._save_run(db, run))

    def runs(self, workload_id: str) -> list[Run]:
        return self._read(lambda db: self._runs(db, workload_id))

    def run(self, run_id: str) -> Run | None:
        rows = self._read(lambda db: db.execute(self._sql.RUN, (run_id,)).fetchall())
        found = runs_of(rows, self.location)
        return found[0] if found else None

    def save_timeline(self, run_id: str, timeline: Timeline) -> None:
        body = timeline.packed()

        def work(db: Connection) -> None:
            if db.execute(self._sql.RUN, (run_id,)).fetchone() is None:
                raise unknown_run(run_id, self.location)
            db.execute(self._sql.SAVE_TIMELINE, (run_id, body))

        self._write(work)

    def timeline(self, run_id: str) -> Timeline | None:
        row = self._read(lambda db: db.execute(self._sql.TIMELINE, (run_id,)).fetchone())
        return None if row is None else timeline_of((row[0], bytes(row[1])), self.location)

    def miss(self, miss: Miss) -> bool:
        values = miss_values(miss)
        return self._write(
            lambda db: db.execute(self._sql.MISS, (*values, self._writer)).rowcount > 0
        )

    def missed(self, kernel: str | None = None) -> list[Miss]:
        rows = self._read(lambda db: db.execute(self._sql.MISSED, {"kernel": kernel}).fetchall())
        return [miss_of(row, self.location) for row in rows]

    def forget_missed(self, workload_ids: Iterable[str]) -> int:
        ids = list(workload_ids)
        return self._write(lambda db: db.execute(self._sql.FORGET_MISSED, (ids,)).rowcount)

    def mark(self, mark: Mark) -> None:
        run_id, workload_id, body = mark_values(mark)
        values = {"run": run_id, "workload": workload_id, "body": body}

        def work(db: Connection) -> None:
            if db.execute(self._sql.WORKLOAD, (workload_id,)).fetchone() is None:
                raise unknown_workload(workload_id, self.location)
            db.execute(self._sql.PUT_MARK, values)

        self._write(work)

    def unmark(self, run_id: str) -> None:
        self._write(lambda db: db.execute(self._sql.DELETE_MARK, (run_id,)))

    def marks(self, workload_id: str) -> list[Mark]:
        asked = {"workload": workload_id}
        rows = self._read(lambda db: db.execute(self._sql.MARKS, asked).fetchall())
        return [mark_of(row, self.location) for row in rows]

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        def work(db: Connection) -> list[WorkloadSummary]:
            rows = db.execute(self._sql.SUMMARIES, {"kernel": kernel}).fetchall()
            return [self._summary(db, row) for row in rows]

        return self._read(work, one_state=True)

    def match(self, workload: Workload) -> Match | None:
        def work(db: Connection) -> Match | None:
            same = db.execute(self._sql.WORKLOAD, (workload.id,)).fetchone()
            if same is not None:
                return Match("strict", workload_of(same, self.location))
            rows = db.execute(self._sql.WORKLOADS_WITH_OK, (workload.kernel,)).fetchall()
            return nearest(workload, [workload_of(row, self.location) for row in rows])

        return self._read(work, one_state=True)

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
        sweep = Sweep.of(older_than_s, superseded, kernel, workloads, max_bytes)
        if dry_run:
            return self._read(lambda db: swept(db, self._sql, sweep, dry_run=True), one_state=True)
        return self._write(lambda db: swept(db, self._sql, sweep, dry_run=False))

    def merge(self, other: StoreReader) -> MergeReport:
        if self._read_only:
            raise read_only_error(self.location)
        workloads = trials = runs = 0
        picks: list[MergedPick] = []
        for part in contents(other):
            new, told = self.take(part)
            workloads, trials, runs = workloads + new[0], trials + new[1], runs + new[2]
            picks += told
        take_missed(self, other)
        return MergeReport(trials, runs, workloads, tuple(picks))

    def take(self, part: Contents) -> tuple[tuple[int, int, int], list[MergedPick]]:
        """Merges one workload: how many workloads, trials and runs were new, and what became of
        its pick."""
        here = {"workload": part.workload.id}
        columns = trial_columns(part.trials)
        timelines = [(run_id, kept.packed()) for run_id, kept in part.timelines.items()]

        def work(db: Connection) -> tuple[tuple[int, int, int], list[MergedPick]]:
            before = pick_from(db, self._sql, part.workload.id, self.location)
            workloads = self._put_workload(db, part.workload)
            self._lock(db, [part.workload.id])
            fresh = [id for (id,) in db.execute(self._sql.TAKE_TRIALS, self._signed(columns))]
            standing = {**here, "fresh": fresh, "standing": list(part.standing)}
            db.execute(self._sql.TAKE_LATEST, standing)
            known = {id for (id,) in db.execute(self._sql.RUN_IDS, here)}
            for run in part.runs:
                db.execute(self._sql.TAKE_RUN, self._run_values(run))
            for row in timelines:
                db.execute(self._sql.TAKE_TIMELINE, row)
            self._decide(db, part.workload.id)
            if part.active is not None:
                db.execute(self._sql.TOUCH, (part.active, part.workload.id))
            now = pick_from(db, self._sql, part.workload.id, self.location)
            runs = sum(run.id not in known for run in part.runs)
            return (workloads, len(fresh), runs), merged_pick(part.workload, before, now)

        return self._write(work)

    def close(self) -> None:
        self._pool.close()

    def _state(self, db: Connection) -> schema.SchemaState:
        return schema.state_of(db, self._address.namespace)

    def _read(self, work: Callable[[Connection], T], *, one_state: bool = False) -> T:
        return self._pool.run(work, one_state=one_state, write=False)

    def _write(self, work: Callable[[Connection], T]) -> T:
        if self._read_only:
            raise read_only_error(self.location)
        if self._writer is None:
            self._writer = self._pool.run(self._known_writer, one_state=False, write=False)
        return self._pool.run(work, one_state=False, write=True)

    def _known_writer(self, db: Connection) -> int:
        said = this_writer()
        row = db.execute(self._sql.WRITER, said).fetchone()
        if row is None:
            db.execute(self._sql.PUT_WRITER, said)
            row = db.execute(self._sql.WRITER, said).fetchone()
        assert row is not None
        return int(row[0])

    def _signed(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**columns, "writer": self._writer}

    def _lock(self, db: Connection, workload_ids: Iterable[str]) -> None:
        """Later writers to these workloads wait until this transaction ends."""
        ids = list(workload_ids)
        known = {id for id, _ in db.execute(self._sql.LOCK_WORKLOADS, (ids,))}
        for id in ids:
            if id not in known:
                raise unknown_workload(id, self.location)

    def _put_workload(self, db: Connection, workload: Workload) -> int:
        body = workload_body(workload)
        row = (workload.id, workload.kernel, time.time(), body)
        added = db.execute(self._sql.PUT_WORKLOAD, row).rowcount
        if not added and workload.origin:
            self._put_origin(db, workload, body)
        return added

    def _put_origin(self, db: Connection, workload: Workload, body: str) -> None:
        row = db.execute(self._sql.WORKLOAD, (workload.id,)).fetchone()
        if row is None or row[1] == body:
            return
        self._lock(db, [workload.id])
        row = db.execute(self._sql.WORKLOAD, (workload.id,)).fetchone()
        assert row is not None
        stored = workload_of(row, self.location)
        known = replace(stored, origin=workload.origin.over(stored.origin))
        if known.origin != stored.origin:
            db.execute(self._sql.PUT_BODY, (workload_body(known), workload.id))

    def _save_run(self, db: Connection, run: Run) -> None:
        here = {"workload": run.workload.id}
        self._put_workload(db, run.workload)
        self._lock(db, [run.workload.id])
        merged = db.execute(self._sql.ANY_TAKEN, here).fetchone() is not None
        before = db.execute(self._sql.RUN, (run.id,)).fetchone()
        if before is not None:
            run = in_its_place(run, before, self.location)
        elif merged:
            run = placed(run, self._runs(db, run.workload.id))
        db.execute(self._sql.SAVE_RUN, self._run_values(run))
        db.execute(self._sql.TOUCH, (run.ended, run.workload.id))
        if merged:
            self._decide(db, run.workload.id)
        if run.outcome is Outcome.FINISHED and run.best is not None:
            db.execute(self._sql.FORGET_MISSED, ([run.workload.id],))

    def _decide(self, db: Connection, workload_id: str) -> None:
        write_decision(db, self._sql, workload_id, self._runs(db, workload_id), self.location)

    def _decide_unless_running(
        self, db: Connection, workload_id: str, appended: Iterable[Trial]
    ) -> None:
        """What a run appends counts when the run has ended: that is soon, and once."""
        if db.execute(self._sql.HAS_PICK, {"workload": workload_id}).fetchone():
            ids = {trial.run_id for trial in appended if trial.workload_id == workload_id}
            running = db.execute(self._sql.RUNNING, (list(ids),)).fetchall()
            if len(running) < len(ids):
                self._decide(db, workload_id)

    def _summary(self, db: Connection, row: Sequence[Any]) -> WorkloadSummary:
        n, body, trials, configs, ok, active = row
        workload = workload_of((n, body), self.location)
        pick = pick_from(db, self._sql, workload.id, self.location)
        if pick is None:
            return WorkloadSummary(workload, trials, configs, ok, active, None)
        return WorkloadSummary(workload, trials, configs, ok, active, pick.trial, pick.rivals)

    def _runs(self, db: Connection, workload_id: str) -> list[Run]:
        return runs_of(db.execute(self._sql.RUNS, (workload_id,)).fetchall(), self.location)

    def _run_values(self, run: Run) -> Mapping[str, Any]:
        return {
            "id": run.id,
            "workload": run.workload.id,
            "started": run.started,
            "outcome": str(run.outcome),
            "best_id": None if run.best is None else run.best.id,
            "taken": run.taken,
            "body": run_body(run),
            "writer": self._writer,
        }


def _in_transaction(address: PostgresAddress, work: Callable[[Connection, str, str], T]) -> T:
    with closing(ConnectionPool(address)) as pool:
        return pool.run(
            lambda db: work(db, address.namespace, address.location), one_state=False, write=True
        )

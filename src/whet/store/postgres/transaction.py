"""One transaction that writes to a PostgreSQL store: what a store's methods are made of."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.core.miss import Miss
from whet.core.run import Run
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.faults import unknown_run, unknown_workload
from whet.store.merging import Contents, MergedPick, merged_pick
from whet.store.picking import placed
from whet.store.postgres.connections import Connection
from whet.store.postgres.records import RowReader, pick_from, trial_columns, write_decision
from whet.store.postgres.signing import Signable, SigningKey
from whet.store.postgres.statements import Statements
from whet.store.protocol import Pick
from whet.store.rows import (
    in_its_place,
    miss_values,
    run_body,
    workload_body,
    workload_of,
)


@dataclass(frozen=True)
class WriteTransaction:
    """Who writes to a workload locks its row first, so that its trials come one after another.
    `writer` is the number of whoever writes; `key` signs what does not bring a signature."""

    db: Connection
    sql: Statements
    writer: int
    rows: RowReader
    key: SigningKey | None = None

    @property
    def location(self) -> str:
        return self.rows.location

    def lock(self, workload_ids: Iterable[str]) -> None:
        """Later writers to these workloads wait until this transaction ends."""
        ids = list(workload_ids)
        known = {id for id, _ in self.db.execute(self.sql.LOCK_WORKLOADS, (ids,))}
        for id in ids:
            if id not in known:
                raise unknown_workload(id, self.location)

    def put_workload(self, workload: Workload) -> int:
        body = workload_body(workload)
        row = (workload.id, workload.kernel, time.time(), body)
        added = self.db.execute(self.sql.PUT_WORKLOAD, row).rowcount
        if not added and workload.origin:
            self._put_origin(workload, body)
        return added

    def append(self, trials: Sequence[Trial]) -> int:
        moments = _moments(trials)
        self.lock(moments)
        columns = {**trial_columns(trials, self._signed(trials)), "writer": self.writer}
        added = len(self.db.execute(self.sql.INSERT_TRIALS, columns).fetchall())
        self._appended(moments, trials)
        return added

    def take_trials(
        self,
        trials: Sequence[Trial],
        standing: Sequence[str],
        signatures: Mapping[str, str] | None = None,
    ) -> int:
        """Those with the ids `standing` stand for their configs, unless a younger one does.
        `signatures` are by id, where they were made before."""
        if not trials:
            return 0
        moments = _moments(trials)
        self.lock(moments)
        signed = self._signed(trials) if signatures is None else signatures
        columns = {**trial_columns(trials, signed), "writer": self.writer}
        fresh = [id for (id,) in self.db.execute(self.sql.TAKE_TRIALS, columns)]
        for workload_id in moments if fresh else ():
            here = {"workload": workload_id, "fresh": fresh, "standing": list(standing)}
            self.db.execute(self.sql.TAKE_LATEST, here)
        self._appended(moments, trials)
        return len(fresh)

    def save_run(self, run: Run, signature: str | None = None) -> None:
        here = {"workload": run.workload.id}
        self.put_workload(run.workload)
        self.lock([run.workload.id])
        merged = self.db.execute(self.sql.ANY_TAKEN, here).fetchone() is not None
        before = self.db.execute(self.sql.RUN, (run.id,)).fetchone()
        if before is not None:
            run = in_its_place(run, before, self.location)
        elif merged:
            run = placed(run, self.runs(run.workload.id))
        self.db.execute(self.sql.SAVE_RUN, self._run_values(run, signature))
        self.db.execute(self.sql.TOUCH, (run.ended, run.workload.id))
        if merged:
            self.decide(run.workload.id)

    def save_timeline(self, run_id: str, timeline: Timeline) -> None:
        if self.run(run_id) is None:
            raise unknown_run(run_id, self.location)
        self.db.execute(self.sql.SAVE_TIMELINE, (run_id, timeline.packed()))

    def miss(self, miss: Miss) -> bool:
        return self.db.execute(self.sql.MISS, (*miss_values(miss), self.writer)).rowcount > 0

    def forget_missed(self, workload_ids: Iterable[str]) -> int:
        return self.db.execute(self.sql.FORGET_MISSED, (list(workload_ids),)).rowcount

    def take(self, part: Contents) -> tuple[tuple[int, int, int], list[MergedPick]]:
        """Merges one workload: how many workloads, trials and runs were new, and what became of
        its pick."""
        here = {"workload": part.workload.id}
        before = self._pick(part.workload.id)
        workloads = self.put_workload(part.workload)
        self.lock([part.workload.id])
        trials = self.take_trials(part.trials, part.standing)
        known = {id for (id,) in self.db.execute(self.sql.RUN_IDS, here)}
        for run in part.runs:
            self.db.execute(self.sql.TAKE_RUN, self._run_values(run, self.sign(run)))
        for run_id, kept in part.timelines.items():
            self.db.execute(self.sql.TAKE_TIMELINE, (run_id, kept.packed()))
        self.decide(part.workload.id)
        if part.active is not None:
            self.db.execute(self.sql.TOUCH, (part.active, part.workload.id))
        runs = sum(run.id not in known for run in part.runs)
        picks = merged_pick(part.workload, before, self._pick(part.workload.id))
        return (workloads, trials, runs), picks

    def run(self, run_id: str) -> Run | None:
        found = self.rows.runs(self.db.execute(self.sql.RUN, (run_id,)).fetchall())
        return found[0] if found else None

    def runs(self, workload_id: str) -> list[Run]:
        return self.rows.runs(self.db.execute(self.sql.RUNS, (workload_id,)).fetchall())

    def decide(self, workload_id: str) -> None:
        write_decision(self.db, self.sql, workload_id, self.runs(workload_id), self.rows)

    def _pick(self, workload_id: str) -> Pick | None:
        return pick_from(self.db, self.sql, workload_id, self.rows)

    def _appended(self, moments: Mapping[str, float], trials: Sequence[Trial]) -> None:
        """What a run appends counts for contested picks when the run has ended: soon, and once."""
        for workload_id, moment in moments.items():
            self.db.execute(self.sql.TOUCH, (moment, workload_id))
            if self.db.execute(self.sql.HAS_PICK, {"workload": workload_id}).fetchone():
                ids = {trial.run_id for trial in trials if trial.workload_id == workload_id}
                running = self.db.execute(self.sql.RUNNING, (list(ids),)).fetchall()
                if len(running) < len(ids):
                    self.decide(workload_id)

    def _put_origin(self, workload: Workload, body: str) -> None:
        row = self.db.execute(self.sql.WORKLOAD, (workload.id,)).fetchone()
        if row is None or row[1] == body:
            return
        self.lock([workload.id])
        row = self.db.execute(self.sql.WORKLOAD, (workload.id,)).fetchone()
        assert row is not None
        stored = workload_of(row, self.location)
        known = replace(stored, origin=workload.origin.over(stored.origin))
        # Of another text than ours only the origin could be written, which no client does.
        if known.origin != stored.origin and workload_body(stored) == row[1]:
            self.db.execute(self.sql.PUT_BODY, (workload_body(known), workload.id))

    def sign(self, thing: Signable) -> str | None:
        return None if self.key is None else self.key.sign(thing)

    def _signed(self, trials: Sequence[Trial]) -> dict[str, str]:
        return {} if self.key is None else {one.id: self.key.sign(one) for one in trials}

    def _run_values(self, run: Run, signature: str | None) -> Mapping[str, Any]:
        return {
            "id": run.id,
            "workload": run.workload.id,
            "started": run.started,
            "outcome": str(run.outcome),
            "best_id": None if run.best is None else run.best.id,
            "taken": run.taken,
            "body": run_body(run),
            "writer": self.writer,
            "signature": signature,
        }


def _moments(trials: Iterable[Trial]) -> dict[str, float]:
    """By workload, when its newest trial was made."""
    found: dict[str, float] = {}
    for trial in trials:
        known = found.get(trial.workload_id, trial.created)
        found[trial.workload_id] = max(known, trial.created)
    return found

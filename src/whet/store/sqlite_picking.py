"""Picks in SQLite: how they are read, and written down where several stores have one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from whet.core.errors import StoreError
from whet.core.run import Run
from whet.core.status import Status
from whet.core.trial import Trial
from whet.store import statements as sql
from whet.store.picking import lineages
from whet.store.protocol import Pick
from whet.store.rows import Row, trial_of


def pick_of(row: Row, db: sqlite3.Connection, workload_id: str, location: str) -> Pick:
    """From what `statements.PICK` selects."""
    best, rivals = _working(row[:-1], workload_id, location), row[-1]
    if rivals is None or rivals == "[]":
        return Pick(best)
    rows = db.execute(sql.RIVALS, (rivals,)).fetchall()
    return Pick(best, tuple(_working(one, workload_id, location) for one in rows))


def write_decision(
    db: sqlite3.Connection, workload_id: str, runs: Sequence[Run], location: str
) -> None:
    """Keeps what follows from runs and trials of several stores, where they are of several."""
    divided, decision = lineages(runs), None
    if len(divided) > 1:
        rows = db.execute(sql.ALL_TRIALS, (workload_id,)).fetchall()
        trials = [trial_of(row, workload_id, location) for row in rows]
        from whet.store.picking import decide  # for merged stores alone

        decision = decide(runs, trials, divided)
    if decision is None:
        db.execute(sql.DELETE_PICK, (workload_id,))
        return
    numbers = dict(db.execute(sql.TRIAL_NUMBERS, (workload_id,)).fetchall())
    rivals = [numbers[rival.id] for rival in decision.pick.rivals]
    kept = sorted(numbers[id] for id in decision.kept)
    row = (numbers[decision.pick.trial.id], json.dumps(rivals), json.dumps(kept))
    db.execute(sql.PUT_PICK, (workload_id, *row))


def _working(row: Row, workload_id: str, location: str) -> Trial:
    trial = trial_of(row, workload_id, location)
    if trial.status is not Status.OK:
        raise StoreError(
            f"store {location} is damaged: trial row {row[0]} is listed as working but has "
            f"status {trial.status}; restore the store from a backup"
        )
    return trial

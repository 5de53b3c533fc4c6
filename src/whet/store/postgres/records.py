"""Trials and picks in PostgreSQL: to rows and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whet.core.errors import StoreError
from whet.core.run import Run
from whet.core.status import Status
from whet.core.trial import Trial
from whet.store.lineage import lineages
from whet.store.picking import decide
from whet.store.postgres.statements import Statements
from whet.store.protocol import Pick
from whet.store.rows import Row, trial_of, trial_values

if TYPE_CHECKING:
    from whet.store.postgres.connections import Connection


# In the order of `rows.trial_values`.
_TRIAL_FIELDS = [
    "id",
    "workload_id",
    "config_id",
    "status",
    "median_ns",
    "created",
    "run_id",
    "config",
    "cost",
    "facts",
    "limit",
    "timing",
    "samples",
    "error",
]


def trial_from(row: Row, workload_id: str, location: str) -> Trial:
    """From `TRIAL_COLUMNS`, where errors are bytes."""
    error = bytes(row[11]).decode(errors="backslashreplace")
    return trial_of((*row[:11], error, *row[12:]), workload_id, location)


def trial_columns(trials: Sequence[Trial], signatures: Mapping[str, str]) -> dict[str, list[Any]]:
    """The parameters of `statements.INSERT_TRIALS`, but for the writer; it knows what stands for
    NULL."""
    rows = [trial_values(trial) for trial in trials]
    found = {name: [row[at] for row in rows] for at, name in enumerate(_TRIAL_FIELDS)}
    return {
        **found,
        "median_ns": [math.nan if one is None else one for one in found["median_ns"]],
        "limit": [one or "" for one in found["limit"]],
        "timing": [one or "" for one in found["timing"]],
        "samples": [one or b"" for one in found["samples"]],
        "created": [float(one) for one in found["created"]],
        "error": [error.encode() for error in found["error"]],
        "signature": [signatures.get(trial.id, "") for trial in trials],
    }


def pick_from(db: Connection, sql: Statements, workload_id: str, location: str) -> Pick | None:
    row = db.execute(sql.PICK, {"workload": workload_id}).fetchone()
    if row is None:
        return None
    best, rivals = _working(row[:-1], workload_id, location), row[-1]
    if not rivals:
        return Pick(best)
    rows = db.execute(sql.RIVALS, (rivals,)).fetchall()
    return Pick(best, tuple(_working(one, workload_id, location) for one in rows))


def write_decision(
    db: Connection, sql: Statements, workload_id: str, runs: Sequence[Run], location: str
) -> None:
    """Keeps what follows from runs and trials of several stores, where they are of several."""
    here = {"workload": workload_id}
    divided, decision = lineages(runs), None
    if len(divided) > 1:
        rows = db.execute(sql.ALL_TRIALS, here).fetchall()
        decision = decide(runs, [trial_from(row, workload_id, location) for row in rows], divided)
    if decision is None:
        db.execute(sql.DELETE_PICK, here)
        return
    numbers: dict[str, int] = dict(db.execute(sql.TRIAL_NUMBERS, here).fetchall())
    db.execute(
        sql.PUT_PICK,
        {
            **here,
            "trial": numbers[decision.pick.trial.id],
            "rivals": [numbers[rival.id] for rival in decision.pick.rivals],
            "kept": sorted(numbers[id] for id in decision.kept),
        },
    )


def _working(row: Row, workload_id: str, location: str) -> Trial:
    trial = trial_from(row, workload_id, location)
    if trial.status is not Status.OK:
        raise StoreError(
            f"store {location} is damaged: trial row {row[0]} is listed as working but has "
            f"status {trial.status}; restore the store from a backup"
        )
    return trial

"""Trials and picks in PostgreSQL: to rows and back."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from whet.core.errors import StoreError
from whet.core.run import Run
from whet.core.status import Status
from whet.core.trial import Trial
from whet.store.picking import best_of, decide, lineages
from whet.store.postgres.statements import Statements
from whet.store.protocol import Pick
from whet.store.rows import Row, bad_row, runs_of, trial_of, trial_values

if TYPE_CHECKING:
    from whet.store.postgres.connections import Connection

T = TypeVar("T")

logger = logging.getLogger("whet")

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


class RowReader:
    """Reads rows that many have written: what one of them wrote must not stop the others. A row
    that cannot be read is left out, and the log names it, once. `left_out` has all such lines."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.left_out: dict[str, None] = {}

    def leave_out(self, line: str) -> None:
        if line not in self.left_out:
            self.left_out[line] = None
            logger.warning("left out: %s", line)

    def each(self, rows: Iterable[Row], noun: Callable[[Row, str], T]) -> list[T]:
        """`noun` makes one of a row and the store's location, or raises `StoreError`."""
        found = []
        for row in rows:
            try:
                found.append(noun(row, self.location))
            except StoreError as error:
                self.leave_out(str(error))
        return found

    def one(self, row: Row | None, noun: Callable[[Row, str], T]) -> T | None:
        found = () if row is None else self.each([row], noun)
        return found[0] if found else None

    def trials(self, rows: Iterable[Row], workload_id: str) -> list[Trial]:
        return self.each(rows, lambda row, location: trial_from(row, workload_id, location))

    def runs(self, rows: Iterable[Row]) -> list[Run]:
        return self.each(rows, lambda row, location: runs_of([row], location)[0])


def trial_from(row: Row, workload_id: str, location: str) -> Trial:
    """From `TRIAL_COLUMNS`, where errors are bytes."""
    if not math.isfinite(row[3]):
        raise bad_row("trial", row[0], location, ValueError(f"it was created at {row[3]}"))
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


def pick_from(db: Connection, sql: Statements, workload_id: str, rows: RowReader) -> Pick | None:
    def working(row: Row, location: str) -> Trial:
        return _working(row, workload_id, location)

    here = {"workload": workload_id}
    row = db.execute(sql.PICK, here).fetchone()
    if row is None:
        return None
    best = rows.one(row[:-1], working)
    if best is not None:
        rivals = db.execute(sql.RIVALS, (row[-1],)).fetchall() if row[-1] else ()
        return Pick(best, tuple(rows.each(rivals, working)))
    if sql.promoted:  # this one or none
        return None
    runs = rows.runs(db.execute(sql.RUNS, (workload_id,)).fetchall())
    trials = rows.trials(db.execute(sql.ALL_TRIALS, here).fetchall(), workload_id)
    latest = rows.trials(db.execute(sql.LATEST_TRIALS, here).fetchall(), workload_id)
    return picked(runs, trials, {trial.config.id: trial for trial in latest})


def picked(
    runs: Sequence[Run], trials: Sequence[Trial], latest: Mapping[str, Trial]
) -> Pick | None:
    """By this process, not by the database: `latest` are by config, `runs` newest first."""
    decision = decide(runs, trials)
    if decision is not None:
        return decision.pick
    best = best_of(runs, latest)
    return None if best is None else Pick(best)


def write_decision(
    db: Connection, sql: Statements, workload_id: str, runs: Sequence[Run], reader: RowReader
) -> None:
    """Keeps what follows from runs and trials of several stores, where they are of several."""
    here = {"workload": workload_id}
    divided, decision = lineages(runs), None
    if len(divided) > 1:
        rows = db.execute(sql.ALL_TRIALS, here).fetchall()
        decision = decide(runs, reader.trials(rows, workload_id), divided)
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

"""`gc` in SQLite: weigh what there is, and remove what was chosen."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.core.frozen import FrozenMap
from whet.store import statements as sql
from whet.store.beside import removed_code, removed_columns, removed_journeys
from whet.store.connecting import FIRST_WITH_PICKS, FIRST_WITH_TIMELINES, pragma, stored_version
from whet.store.sweeping import GcReport, Sweep, Weighed


@dataclass(frozen=True)
class SweepPlan:
    """`report` is what carrying it out comes to; its bytes are an estimate. `changed` are the ids
    of workloads that lose trials."""

    asked: Mapping[str, Any]
    report: GcReport
    changed: frozenset[str] = frozenset()

    @property
    def anything(self) -> bool:
        return bool(self.report.trials or self.report.runs or self.report.workloads)

    def carry_out(self, db: sqlite3.Connection) -> None:
        db.execute(sql.DELETE_TRIALS, self.asked)
        db.execute(sql.DELETE_WORKLOADS, self.asked)
        db.execute(sql.DELETE_MISSED, self.asked)

    def remove_beside(self, db: sqlite3.Connection, file: Path) -> int:
        """Once it is carried out: columns and intermediate code, kept beside the file, of trials
        that are gone, and reports of workloads that are. How many bytes that were."""
        try:
            there = {id for _, id, _, _ in db.execute(sql.SWEPT)}
            freed = removed_columns(file, there - self.changed) + removed_journeys(file, there)
            return freed + removed_code(file, lambda: {name for (name,) in db.execute(sql.CODE)})
        except (sqlite3.Error, UnicodeDecodeError):  # of a damaged row: then they stay
            return 0


def plan_sweep(db: sqlite3.Connection, sweep: Sweep) -> SweepPlan:
    """Reads no row's body, so that a damaged one can be swept away."""
    size, kept = live_bytes(db), _kept(db)
    numbers, known = _weighed(db, size, kept, exact=sweep.max_bytes is not None)
    going = sweep.choose(known, size)
    asked = {
        "going": json.dumps([numbers[one.id] for one in going.workloads]),
        "confined": json.dumps([numbers[one.id] for one in going.confined]),
        "superseded": going.superseded,
        "kept": kept,
        "whole": sweep.workloads and sweep.ids is None,
        "kernel": sweep.kernel,
        "cutoff": sweep.cutoff,
    }
    trials, estimate = db.execute(sql.COUNT_TRIALS_GOING, asked).fetchone()
    if stored_version(db) >= FIRST_WITH_TIMELINES:
        estimate += db.execute(sql.TIMELINE_BYTES_GOING, asked).fetchone()[0]
    report = GcReport(
        trials=trials,
        runs=db.execute(sql.COUNT_RUNS_GOING, asked).fetchone()[0],
        workloads=len(going.workloads),
        bytes_freed=estimate,
        bytes_left=max(0, size - estimate),
        kernels=FrozenMap(Counter(one.kernel for one in going.workloads)),
        dry_run=True,
    )
    losing = going.confined if going.superseded else going.workloads
    return SweepPlan(asked, report, frozenset(one.id for one in losing))


def joined_reports(one: GcReport, two: GcReport) -> GcReport:
    """What two sweeps in a row came to."""
    return replace(
        two,
        trials=one.trials + two.trials,
        runs=one.runs + two.runs,
        workloads=one.workloads + two.workloads,
        bytes_freed=one.bytes_freed + two.bytes_freed,
        kernels=FrozenMap(Counter(one.kernels) + Counter(two.kernels)),
    )


def file_bytes(db: sqlite3.Connection) -> int:
    return pragma(db, "page_count") * pragma(db, "page_size")


def live_bytes(db: sqlite3.Connection) -> int:
    """Without the pages that wait to be used again."""
    used = pragma(db, "page_count") - pragma(db, "freelist_count")
    return used * pragma(db, "page_size")


def _kept(db: sqlite3.Connection) -> str:
    """What several stores' picks rest on, as a list of `trials.n`."""
    if stored_version(db) < FIRST_WITH_PICKS:
        return "[]"
    return json.dumps([n for (n,) in db.execute(sql.KEPT)])


def _weighed(
    db: sqlite3.Connection, size: int, kept: str, *, exact: bool
) -> tuple[dict[str, int], list[Weighed]]:
    """Every workload and its share of the file, by what its rows hold; the first page of each
    table and index is nobody's. Nothing is weighed where the choice does not depend on it."""
    rows = db.execute(sql.SWEPT).fetchall()
    numbers = {id: n for n, id, _, _ in rows}
    weights: dict[int, float] = {}
    superseded: dict[int, float] = {}
    if exact:
        for n, of_all, of_superseded in db.execute(sql.WEIGH_TRIALS, {"kept": kept}):
            weights[n], superseded[n] = of_all, of_superseded
        timelines = stored_version(db) >= FIRST_WITH_TIMELINES
        more = [sql.WEIGH_TIMELINES] if timelines else []
        for statement in (sql.WEIGH_WORKLOADS, sql.WEIGH_RUNS, *more):
            for n, of_all in db.execute(statement):
                weights[n] = weights.get(n, 0.0) + of_all
    empty = db.execute(sql.ROOT_PAGES).fetchone()[0] * pragma(db, "page_size")
    scale = max(0, size - empty) / (sum(weights.values()) or 1.0)
    known = [
        Weighed(id, kernel, active, weights.get(n, 0) * scale, superseded.get(n, 0) * scale)
        for n, id, kernel, active in rows
    ]
    return numbers, known


def shrink(db: sqlite3.Connection, size: int) -> tuple[int, int]:
    """Gives the room back, unless others are in the way: then it is used for later trials.

    How much that was of `size`, and how much is in use."""
    with suppress(sqlite3.OperationalError):
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return max(0, size - file_bytes(db)), live_bytes(db)

"""`gc` in PostgreSQL: weigh what there is, and remove what was chosen."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from whet.core.frozen import FrozenMap
from whet.store.postgres.statements import Statements
from whet.store.sweeping import GcReport, Sweep, Weighed

if TYPE_CHECKING:
    from whet.store.postgres.connections import Connection


def swept(db: Connection, sql: Statements, sweep: Sweep, *, dry_run: bool) -> GcReport:
    """A workload with a promotion stays until that is withdrawn. Bytes are those that rows hold:
    the server keeps freed room for rows to come, and shrinks its files as autovacuum sees fit.
    """
    numbers, known, promoted = _weighed(db, sql)
    size = sum(one.bytes for one in known)
    going = sweep.choose(known, size)
    going = replace(
        going, workloads=tuple(one for one in going.workloads if one.id not in promoted)
    )
    asked = {
        "going": [numbers[one.id] for one in going.workloads],
        "confined": [numbers[one.id] for one in going.confined],
        "superseded": going.superseded,
        "whole": sweep.workloads and sweep.ids is None,
        "kernel": sweep.kernel,
        "cutoff": sweep.cutoff,
    }
    gone = {one.id for one in going.workloads}
    freed = sum(one.bytes for one in going.workloads)
    if going.superseded:
        freed += sum(one.superseded_bytes for one in going.confined if one.id not in gone)
    report = GcReport(
        trials=_one(db, sql.COUNT_TRIALS_GOING, asked),
        runs=_one(db, sql.COUNT_RUNS_GOING, asked),
        workloads=len(going.workloads),
        bytes_freed=int(freed),
        bytes_left=int(size - freed),
        kernels=FrozenMap(Counter(one.kernel for one in going.workloads)),
        dry_run=dry_run,
    )
    if not dry_run:
        for statement in (sql.DELETE_TRIALS, sql.DELETE_WORKLOADS, sql.DELETE_MISSED):
            db.execute(statement, asked)
    return report


def _one(db: Connection, statement: str, asked: dict[str, object]) -> int:
    row = db.execute(statement, asked).fetchone()
    assert row is not None
    return int(row[0])


def _weighed(db: Connection, sql: Statements) -> tuple[dict[str, int], list[Weighed], set[str]]:
    """The numbers of workloads by id, what each weighs, and the ids of those with a promotion."""
    rows = db.execute(sql.SWEPT).fetchall()
    weights: Counter[int] = Counter()
    superseded: dict[int, int] = {}
    for n, of_all, of_superseded in db.execute(sql.WEIGH_TRIALS):
        weights[n] += of_all
        superseded[n] = of_superseded
    for n, rest in db.execute(sql.WEIGH_REST):
        weights[n] += rest
    known = [
        Weighed(id, kernel, active, weights[n], superseded.get(n, 0))
        for n, id, kernel, active, _ in rows
    ]
    return {row[1]: row[0] for row in rows}, known, {row[1] for row in rows if row[4]}

"""Runs, what they spent, and their timelines."""

from __future__ import annotations

from typing import Any

from whet.core.run import Run
from whet.engine.accounts.account import Tuning, account
from whet.explorer.columns import STATUSES, TrialColumns
from whet.explorer.subject import NotThereError, Subject, config_json

_NOT_KEPT = (
    "No timeline was kept of this run: it is still running, was killed, or is of an older whet."
)
# Beyond this an account of every config takes longer than a person waits.
MOST_ACCOUNTED = 50_000


def runs_json(subject: Subject) -> list[dict[str, Any]]:
    return [_run_json(run) for run in subject.runs()]


def timeline_json(subject: Subject, run_id: str) -> dict[str, Any]:
    """Spans are empty where no timeline was kept: a run that was killed or still goes on."""
    run = next((one for one in subject.runs() if one.id == run_id), None)
    if run is None:
        raise NotThereError(f"there is no run '{run_id}'")
    kept = subject.timeline(run_id)
    columns = subject.read().columns
    spans = [] if kept is None else kept.spans
    rows = {id: columns.row_of(id) for id in {span.config_id for span in spans if span.config_id}}
    statuses = _statuses(columns, rows)
    told = _account(subject, run, columns.rows)
    return {
        "run": run_id,
        "wall_s": run.wall_s,
        **({"absent": _NOT_KEPT} if kept is None else {}),
        "spans": [
            {
                "lane": span.lane,
                "name": span.name,
                "start_s": span.start_s,
                "end_s": span.end_s,
                "depth": span.depth,
                "config_id": span.config_id,
                "row": rows.get(span.config_id),
                "status": statuses.get(span.config_id, ""),
            }
            for span in sorted(spans, key=lambda span: (span.start_s, span.depth))
        ],
        "wall": dict(run.cost.wall),
        "phases": {name: s for name, s in run.cost.work.items() if "." not in name},
        "stages": {name: s for name, s in run.cost.work.items() if "." in name},
        **told,
    }


def _account(subject: Subject, run: Run, rows: int) -> dict[str, Any]:
    if rows > MOST_ACCOUNTED:
        return {"stock": None, "saved": None, "payback": None}
    trials = tuple(trial for trial in subject.all_trials() if trial is not None)
    data = account([Tuning(run, trials, run.first)]).to_json()
    return {name: data[name] for name in ("stock", "saved", "payback")}


def _run_json(run: Run) -> dict[str, Any]:
    coverage = run.coverage
    return {
        "id": run.id,
        "search": run.search,
        "seed": run.seed,
        "budget": run.budget.to_json(),
        "outcome": str(run.outcome),
        "started": run.started,
        "wall_s": run.wall_s,
        "stopped": None if run.stopped is None else str(run.stopped),
        "tried": run.tried,
        "trials": run.trials,
        "space_size": run.space_size,
        "exhaustive": run.exhaustive,
        "first": None if run.first is None else config_json(run.first),
        "best": None if run.best is None else config_json(run.best),
        "provisional": run.provisional,
        "best_id": None if run.best is None else run.best.id,
        "equals": [config.id for config in run.equals],
        "wall": dict(run.cost.wall),
        "work": dict(run.cost.work),
        "whet": run.whet,
        "coverage": "" if coverage is None else str(coverage),
    }


def _statuses(columns: TrialColumns, rows: dict[str, int | None]) -> dict[str, str]:
    codes = columns.column("status")
    return {id: STATUSES[codes[row]] for id, row in rows.items() if row is not None}

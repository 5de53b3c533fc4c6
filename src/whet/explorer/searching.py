"""How a search went: one that was simulated on what is known, or a run that took place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from whet.core.errors import UsageError, did_you_mean
from whet.explorer.columns import MEASURED, TrialColumns
from whet.explorer.subject import AbsentError, NotThereError, Recorded, Subject
from whet.replay.simulation import UNLISTED, Course, replay_space, simulate
from whet.search import STRATEGIES, make_strategy

MOST_EVALUATIONS = 2_000

# What each goes by, for somebody who watches it.
LINES = {
    "auto": "What whet uses: a random order where everything will be tried, else two Gaussian "
    "processes that propose what is likely to be faster.",
    "grid": "Every config in the author's order. It learns nothing.",
    "random": "The author's first config, then any config with the same chance. It learns nothing.",
    "coordinate": "Changes one parameter of the best config at a time, and starts anew when no "
    "neighbour is faster.",
    "anneal": "Walks from config to config; steps to slower ones become rarer as it cools down.",
    "genetic": "Crosses and mutates the fastest configs so far.",
    "evolution": "Moves configs towards the best one, along the difference of two others.",
    "gp": "Bayesian: a Gaussian process predicts each config's time and how sure it is; the one "
    "with the highest expected improvement is next.",
    "tpe": "Tries what good configs have more often than the others.",
    "forest": "Bayesian with a forest of trees as its model.",
    "evolve-model": "Evolves configs against a learned cost model and measures only the most "
    "promising.",
}
LABELS = {"gp": "Bayesian (gp)"}


def strategies_json() -> list[dict[str, str]]:
    return [
        {"name": name, "label": LABELS.get(name, name), "line": LINES.get(name, "")}
        for name in STRATEGIES
    ]


def simulated_json(subject: Subject, strategy: str, seed: int, budget: int) -> dict[str, Any]:
    """`rows` are the page's row numbers, in the order in which the strategy asked for them."""
    if strategy not in STRATEGIES:
        raise NotThereError(f"no strategy '{strategy}'{did_you_mean(strategy, STRATEGIES)}")
    if not 0 < budget <= MOST_EVALUATIONS:
        raise NotThereError(f"budget must be from 1 to {MOST_EVALUATIONS}")
    recorded = subject.recorded()
    try:
        course = _course(recorded, strategy, seed, budget)
    except UsageError as error:
        raise AbsentError(f"this search cannot be simulated: {error}") from error
    columns = subject.read().columns
    rows = [
        None if at == UNLISTED else columns.row_of(recorded.table.configs[at].id)
        for at in course.evaluations
    ]
    return {
        "strategy": strategy,
        "label": LABELS.get(strategy, strategy),
        "line": LINES.get(strategy, ""),
        "simulated": True,
        "seed": seed,
        "rows": rows,
        "seconds": list(course.seconds),
        "best_ns": [_finite(ns) for ns in course.best_ns],
        "search_s": course.search_s,
    }


def run_json(subject: Subject, run_id: str) -> dict[str, Any]:
    """The rows that one run appended, in their order."""
    run = next((one for one in subject.runs() if one.id == run_id), None)
    if run is None:
        raise NotThereError(f"there is no run '{run_id}' of this workload")
    columns = subject.read().columns
    rows = rows_of_run(columns, run_id)
    best = best_so_far(columns, rows)
    moments = columns.column("at_s")[list(rows)].tolist()
    return {
        "strategy": run.search,
        "label": LABELS.get(run.search, run.search),
        "line": LINES.get(run.search, ""),
        "simulated": False,
        "run": run_id,
        "seed": run.seed,
        "rows": list(rows),
        "seconds": moments,
        "best_ns": best,
        "search_s": run.cost.work.get("search", 0.0),
    }


def rows_of_run(columns: TrialColumns, run_id: str) -> Sequence[int]:
    if run_id not in columns.runs.values:
        return []
    code = columns.runs.values.index(run_id)
    return [int(row) for row in np.flatnonzero(columns.column("run") == code)]


def best_so_far(columns: TrialColumns, rows: Sequence[int]) -> list[float | None]:
    """The lowest median of what was measured up to each row; None before the first."""
    if not len(rows):
        return []
    medians = columns.column("median_ns")[rows].astype(float)
    medians[~np.isin(columns.column("status")[rows], MEASURED)] = np.nan
    medians[np.isnan(medians)] = math.inf
    return [_finite(ns) for ns in np.minimum.accumulate(medians).tolist()]


@lru_cache(maxsize=256)
def _course(recorded: Recorded, strategy: str, seed: int, budget: int) -> Course:
    table, workload = recorded.table, recorded.workload
    space = replay_space(table, workload)
    evals = min(budget, len(space))
    made = make_strategy(strategy, space, seed, whole=False)
    return simulate(table, workload, made, evals, seed=seed)


def _finite(ns: float) -> float | None:
    return float(ns) if math.isfinite(ns) else None

"""What the page asks, answered as JSON: trials, runs, searches, frontiers, comparisons."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from whet.core.errors import UsageError, WhetError, did_you_mean
from whet.core.run import Run
from whet.core.trial import Trial
from whet.core.workload import Device
from whet.engine.account import Tuning, account
from whet.explorer.columns import STATUSES, TrialColumns
from whet.explorer.drawings import Convergence
from whet.explorer.subject import AbsentError, NotThereError, Recorded, Subject, config_json
from whet.replay.frontier import Frontier, spread_cases, strategy_cloud
from whet.replay.pareto import Cloud, Draws, Paper, racing_clouds
from whet.replay.simulation import UNLISTED, Course, replay_space, simulate
from whet.search import STRATEGIES, make_strategy

# More would not be seen apart in any drawing.
MOST_SAMPLES = 5_000

_NOT_KEPT = (
    "No timeline was kept of this run: it is still running, was killed, or is of an older whet."
)
# Beyond this an account of every config takes longer than a person waits.
MOST_ACCOUNTED = 50_000
# Every page asks for the numbers of builds, so that it must be quick.
MOST_FACTS = 20_000

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

MOST_DRAWS, MOST_RUNS = 1_000, 50
# A race takes milliseconds where the paper's simulation takes next to nothing.
RACED_DRAWS, RACED_RUNS = 40, 8


def trial_json(subject: Subject, row: int, known: Trial | None = None) -> dict[str, Any]:
    trial = subject.trial(row) if known is None else known
    if trial is None:
        raise NotThereError(f"the config of row {row} was never tried on this key")
    timing, limit = trial.timing, trial.limit
    interval = None if timing is None else timing.interval_ns
    samples = [] if timing is None else list(timing.samples[:MOST_SAMPLES])
    return {
        "row": row,
        "id": trial.id,
        "config": config_json(trial.config),
        "config_id": trial.config.id,
        "status": str(trial.status),
        "median_ns": trial.median_ns,
        "low_ns": None if interval is None else interval[0],
        "high_ns": None if interval is None else interval[1],
        "samples": samples,
        "samples_total": 0 if timing is None else len(timing.samples),
        "timing": None if timing is None else timing.meta_json(),
        "registers": _fact(trial, "registers"),
        "spills": _fact(trial, "spills"),
        "shared_bytes": _fact(trial, "shared_bytes"),
        "occupancy": occupancy_of(trial, subject.workload.device),
        "facts": dict(trial.facts),
        "error": trial.error,
        "limit": None if limit is None else limit.to_json(),
        "cost": dict(trial.cost.work),
        "run": trial.run_id,
        "created": trial.created,
        "ir": list(subject.stages(trial)) if known is None else [],
    }


def stage_text(subject: Subject, row: int, stage: str) -> str:
    trial = subject.trial(row)
    kept = {} if trial is None else subject.stages(trial)
    if stage not in kept:
        what = f"; there is {', '.join(kept)}" if kept else "; tune with --keep-ir to keep some"
        raise NotThereError(f"no '{stage}' was kept of row {row}{what}")
    return kept[stage]


def occupancy_of(trial: Trial, device: Device) -> float | None:
    """The share of warps that can be resident, for a Triton config whose registers are known."""
    used = _resources(trial)
    return None if used is None else _occupancy(device.architecture, *used)


def occupancy_limits(trial: Trial, device: Device) -> dict[str, Any] | None:
    """How many blocks of it each resource of a multiprocessor has room for, and which of these has
    the least."""
    from whet.targets.triton.packed.architectures import resident_blocks

    used, unit = _resources(trial), _unit(device.architecture)
    held = None if used is None or unit is None else resident_blocks(unit, *used)
    if held is None:
        return None
    least = min(held.values())
    return {"blocks": held, "limited_by": [name for name, many in held.items() if many == least]}


def _resources(trial: Trial) -> tuple[int, int, int] | None:
    warps, registers = trial.config.get("num_warps"), _fact(trial, "registers")
    shared = _fact(trial, "shared_bytes")
    known = type(warps) is int and registers is not None and shared is not None
    return (warps, registers, shared) if known else None  # type: ignore[return-value]


@lru_cache(maxsize=1024)
def _occupancy(architecture: str, warps: int, registers: int, shared: int) -> float | None:
    from whet.targets.triton.packed.architectures import occupancy

    unit = _unit(architecture)
    return None if unit is None else occupancy(unit, warps, registers, shared)


def _unit(architecture: str) -> Any:
    # Imported when used: it is the target's to know what a multiprocessor holds.
    from whet.targets.triton.packed.architectures import architecture as known

    try:
        return known(architecture).unit
    except WhetError:
        return None


def _fact(trial: Trial, name: str) -> int | None:
    value = trial.facts.get(name)
    return value if type(value) is int else None


def facts_json(subject: Subject) -> dict[str, list[float | None]]:
    """What is known in numbers of builds, by row, as far as it is not the same of all; nothing of
    more trials than a page waits for."""
    rows = subject.read().columns.rows
    trials = subject.all_trials()[:rows] if rows <= MOST_FACTS else ()
    found: dict[str, list[float | None]] = {}
    for row, trial in enumerate(trials):
        if trial is None:
            continue
        occupancy = occupancy_of(trial, subject.workload.device)
        for name, value in {**trial.facts, "occupancy": occupancy}.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if math.isfinite(value):
                found.setdefault(name, [None] * len(trials))[row] = value
    return {name: values for name, values in found.items() if len({*values} - {None}) > 1}


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
    rows = columns.rows_of_run(run_id)
    curve = Convergence.of(columns, rows)
    return {
        "strategy": run.search,
        "label": LABELS.get(run.search, run.search),
        "line": LINES.get(run.search, ""),
        "simulated": False,
        "run": run_id,
        "seed": run.seed,
        "rows": rows,
        "seconds": curve.seconds,
        "best_ns": [_finite(ns) for ns in curve.best_ns],
        "search_s": run.cost.work.get("search", 0.0),
    }


@lru_cache(maxsize=256)
def _course(recorded: Recorded, strategy: str, seed: int, budget: int) -> Course:
    table, workload = recorded.table, recorded.workload
    space = replay_space(table, workload)
    evals = min(budget, len(space))
    made = make_strategy(strategy, space, seed, whole=False)
    return simulate(table, workload, made, evals, seed=seed)


def _finite(ns: float) -> float | None:
    return float(ns) if math.isfinite(ns) else None


@dataclass(frozen=True)
class Knobs:
    draws: int = 200
    runs: int = 20
    compile_factor: int = 16
    exec_ms: tuple[float, float] = (10.0, 100.0)
    most_configs: int = 80
    searches: tuple[str, ...] = ("auto",)
    racing: bool = False
    all_keys: bool = False
    seed: int = 0

    def checked(self) -> Knobs:
        unknown = [name for name in self.searches if name not in STRATEGIES]
        if unknown:
            raise NotThereError(f"no strategy '{unknown[0]}'; valid: {', '.join(STRATEGIES)}")
        if not (2 <= self.draws <= MOST_DRAWS and 4 <= self.runs <= MOST_RUNS):
            raise NotThereError(f"draws must be from 2 to {MOST_DRAWS}, runs from 4 to {MOST_RUNS}")
        low, high = self.exec_ms
        if self.compile_factor < 1 or self.most_configs < 1 or not 0 < low <= high <= 10_000:
            raise NotThereError("compile_factor, most_configs and exec_ms must be positive")
        return self

    @property
    def plan(self) -> Draws:
        return Draws(
            draws=self.draws,
            runs=self.runs,
            exec_ms=self.exec_ms,
            configs=(1, self.most_configs),
            compile_factor=self.compile_factor,
            seed=self.seed,
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "exec_ms": list(self.exec_ms), "searches": list(self.searches)}


def frontier_json(subject: Subject, knobs: Knobs) -> dict[str, Any]:
    """One series a variant: a point for each draw, and which of them are on its frontier."""
    recorded = subject.recorded()
    optimum = recorded.workload.optimum
    if optimum is None:
        raise AbsentError("no config works on this workload, so there is nothing to simulate")
    try:
        clouds = _clouds(recorded, knobs.checked())
    except (UsageError, ValueError) as error:
        raise AbsentError(f"this workload cannot be simulated: {error}") from error
    return {
        "workload": subject.id,
        "best_ns": optimum.ns,
        "knobs": knobs.to_json(),
        "series": [_series(cloud) for cloud in clouds],
    }


@lru_cache(maxsize=32)
def _clouds(recorded: Recorded, knobs: Knobs) -> tuple[Cloud, ...]:
    table, plan = recorded.table, knobs.plan
    working = [one for one in table.workloads if one.optimum is not None]
    workloads = working if knobs.all_keys else [recorded.workload]
    clouds = Paper.of(table, workloads, plan).clouds()
    if knobs.racing:
        raced = replace(plan, draws=min(RACED_DRAWS, plan.draws), runs=min(RACED_RUNS, plan.runs))
        paper = Paper.of(table, workloads, raced)
        clouds += racing_clouds(table, workloads, paper, raced.draws)
    cases = spread_cases(table, workloads, plan.runs)
    for name in knobs.searches:
        label = LABELS.get(name, name)
        for batch in (1, plan.compile_factor):
            called = label if batch == 1 else f"{label} + {plan.parallel}"
            clouds.append(strategy_cloud(called, cases, name, plan, batch))
    return tuple(clouds)


def _series(cloud: Cloud) -> dict[str, Any]:
    frontier = Frontier.of(cloud)
    fraction, seconds = cloud.fraction.mean(axis=1), cloud.seconds.mean(axis=1)
    return {
        "name": cloud.name,
        "seconds": seconds.tolist(),
        "fraction": fraction.tolist(),
        "configs": np.asarray(cloud.configs).tolist(),
        "exec_ms": None if cloud.exec_ms is None else cloud.exec_ms.tolist(),
        "frontier": [int(row) for row in frontier.rows],
    }

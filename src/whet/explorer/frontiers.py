"""Tuning time against what it finds: the simulation of `whet pareto`, with its knobs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from whet.core.errors import UsageError
from whet.explorer.searching import LABELS
from whet.explorer.subject import AbsentError, NotThereError, Recorded, Subject
from whet.replay.frontier import Frontier
from whet.replay.pareto import Cloud, Draws, Paper
from whet.replay.pareto_study import spread_cases, strategy_cloud
from whet.replay.racing import racing_clouds
from whet.search import STRATEGIES

MOST_DRAWS, MOST_RUNS = 1_000, 50
# A race takes milliseconds where the paper's simulation takes next to nothing.
RACED_DRAWS, RACED_RUNS = 40, 8


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
        return {
            "draws": self.draws,
            "runs": self.runs,
            "compile_factor": self.compile_factor,
            "exec_ms": list(self.exec_ms),
            "most_configs": self.most_configs,
            "searches": list(self.searches),
            "racing": self.racing,
            "all_keys": self.all_keys,
            "seed": self.seed,
        }


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
        raced = Draws(
            draws=min(RACED_DRAWS, plan.draws),
            runs=min(RACED_RUNS, plan.runs),
            exec_ms=plan.exec_ms,
            configs=plan.configs,
            compile_factor=plan.compile_factor,
            seed=plan.seed,
        )
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

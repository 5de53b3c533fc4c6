"""The few configs that together serve known workloads best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.config import Config
from whet.core.trial import Trial


@dataclass(frozen=True)
class Portfolio:
    """`configs` in the order they were added; `coverage` is, after each, the geometric mean over
    the workloads of how fast the best of them is against the best known."""

    configs: tuple[Config, ...]
    coverage: tuple[float, ...]


def times_of(trials: Sequence[Trial]) -> dict[Config, float]:
    """Nanoseconds by config, of the latest trial of each that was measured."""
    latest = {trial.config: trial for trial in trials}
    return {
        config: trial.median_ns
        for config, trial in latest.items()
        if trial.status.measured and trial.median_ns
    }


def portfolio_of(
    times_by_workload: Sequence[Mapping[Config, float]], k: int, *, least: float = 1e-2
) -> Portfolio:
    """Greedy: each further config is the one that raises the coverage most, of equals the first.

    Where a config was not measured or failed it counts as reaching `least` of the best. Fewer than
    k where one more would not help.
    """
    known = [times for times in times_by_workload if times]
    configs = list(dict.fromkeys(config for times in known for config in times))
    logs = np.full((len(known), len(configs)), math.log(least))
    at = {config: column for column, config in enumerate(configs)}
    for row, times in enumerate(known):
        best = min(times.values())
        for config, ns in times.items():
            logs[row, at[config]] = max(math.log(best / ns), math.log(least))
    chosen: list[int] = []
    coverage: list[float] = []
    reached = np.full(len(known), math.log(least))
    while known and len(chosen) < k:
        means = np.maximum(reached[:, None], logs).mean(axis=0)
        column = int(np.argmax(means))
        if chosen and means[column] <= reached.mean() + 1e-12:
            break
        chosen.append(column)
        reached = np.maximum(reached, logs[:, column])
        coverage.append(float(np.exp(reached.mean())))
    return Portfolio(tuple(configs[column] for column in chosen), tuple(coverage))

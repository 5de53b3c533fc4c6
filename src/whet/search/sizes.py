"""Many sizes of one kernel, tuned one after another, each learning from those before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whet.core.config import Config
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.learn.costmodel import prior_for
from whet.search.registry import make_strategy

Key = Mapping[str, Any]
Measure = Callable[[Key, Config], Trial]


def tune_in_sequence(
    space: Space,
    keys: Sequence[Key],
    measure: Measure,
    *,
    first: int = 8,
    first_evals: int | None = None,
    evals: int = 5,
    search: str = "auto",
    seed: int = 0,
) -> list[list[Trial]]:
    """The trials of each size: the `first` sizes with `first_evals` evaluations (None: all of the
    space), the others with `evals` and what was learned until then."""
    told: list[tuple[Key, Sequence[Trial]]] = []
    done: list[list[Trial]] = []
    for at, key in enumerate(keys):
        if at < first and first_evals is None:
            trials = [measure(key, config) for config in space]
        else:
            prior = prior_for(key, space, told, seed=seed) if told else None
            strategy = make_strategy(search, space, seed + at, transfer=prior)
            trials = []
            for _ in range(evals if at >= first or first_evals is None else first_evals):
                asked = strategy.ask(1)
                answers = [measure(key, config) for config in asked]
                strategy.tell(answers)
                trials += answers
        told.append((key, trials))
        done.append(trials)
    return done


def recorded(
    tables: Mapping[tuple[Any, ...], Mapping[Config, float]], names: Sequence[str]
) -> tuple[list[Key], Measure]:
    """The keys of recorded sizes, and a measurement that looks the answer up: nanoseconds by
    config, a failure where there are none."""
    keys = {size: dict(zip(names, size, strict=True)) for size in tables}

    def measure(key: Key, config: Config) -> Trial:
        ns = tables[tuple(key[name] for name in names)].get(config, math.nan)
        if math.isnan(ns):
            return Trial("recorded", config, Status.RUN_ERROR, id=config.id)
        return Trial("recorded", config, Status.OK, Timing((ns,), "recorded"), id=config.id)

    return list(keys.values()), measure


def fractions(
    tables: Mapping[tuple[Any, ...], Mapping[Config, float]], done: Sequence[Sequence[Trial]]
) -> list[float]:
    """Of each size's optimum, what its trials reached; 0 where none worked."""
    reached = []
    for size, trials in zip(tables, done, strict=True):
        best = min((trial.median_ns for trial in trials if trial.median_ns), default=math.inf)
        reached.append(min(tables[size].values()) / best)
    return reached

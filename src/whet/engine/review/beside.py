"""A few configs measured side by side, outside of any tuning: nothing is raced or written down
but, in this process, the mark of a config that has never run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from whet.builds.builder import Builder
from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Cost
from whet.engine.host import memory_info
from whet.engine.recovery.crash_report import CrashReport, how_it_ended, noticed
from whet.engine.recovery.interrupt import DeviceLostError
from whet.engine.recovery.launch_journal import LaunchJournalOutside, proven
from whet.engine.settings import Settings
from whet.engine.target import BenchLimits, Target
from whet.measure.bench.protocol import Bench, Visit
from whet.measure.racing.policy import DuelPolicy
from whet.store import Store

# Taken before the rounds, to load, check and warm a config; they count for nothing.
FIRST_SAMPLES = 2


@dataclass
class Beside:
    """By config id. `rounds` are nanoseconds of those that took part in each; `lost` is set where
    one of them took the device from this process, which ended it for all."""

    artifacts: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, FrozenMap[Value]] = field(default_factory=dict)
    timings: dict[str, Timing] = field(default_factory=dict)
    failures: dict[str, ConfigFailure] = field(default_factory=dict)
    rounds: list[dict[str, float]] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)
    lost: DeviceLostError | None = None

    def cost(self, config: Config) -> Cost:
        return self.costs.get(config.id, Cost())

    def spend(self, config: Config, seconds: FrozenMap[float]) -> None:
        self.costs[config.id] = self.cost(config) + Cost(seconds)


def measure_beside(
    target: Target,
    configs: Sequence[Config],
    store: Store,
    settings: Settings,
    policy: DuelPolicy,
) -> Beside:
    """Builds, checks and measures them in turns, as many as a duel may take.

    How many is settled beforehand, not by how the times look: else chance would have a say in
    when to stop. Who fails is in `failures`, with whatever was taken of it before. Another process
    is asked for where one that ran such a config has died, and where the store cannot take a mark
    of one that has never run; without another process, whoever may have ended that one fails.
    """
    beside = Beside()
    _build(beside, target, configs, settings)
    workload = target.workload()
    died = noticed(store, workload.id)
    untold = store.read_only and not all(proven(store, workload.id, one) for one in configs)
    limits = BenchLimits(
        settings.memory_bytes or memory_info("MemAvailable"),
        settings.isolate or bool(died.open) or untold,
        settings.device_memory_bytes,
        lambda: settings.first_call_s,
    )
    with closing(target.bench(limits)) as bench:
        marking = LaunchJournalOutside(store, workload, lambda: bench.in_process)
        marking.refuse_if_lost()
        if bench.in_process:
            _blame(beside, died)
        try:
            for config in configs:
                if config.id not in beside.failures:
                    _look(beside, bench, marking, config, settings.run_limit_s)
            _take_rounds(beside, bench, marking, configs, policy, settings.run_limit_s)
        except DeviceLostError as lost:
            beside.lost = lost
    return beside


def _blame(beside: Beside, died: CrashReport) -> None:
    for mark in died.open:
        for id in died.suspects.intersection(config.id for config in mark.configs):
            failure = ConfigFailure(Status.RUN_ERROR, how_it_ended(mark))
            beside.failures.setdefault(id, failure)


def _build(beside: Beside, target: Target, configs: Sequence[Config], settings: Settings) -> None:
    limit = settings.build_limit_s
    with Builder(jobs=settings.jobs, mode=target.build_mode, limit_s=limit) as builder:
        for config in configs:
            refusal = target.reject(config)
            if refusal is not None:
                beside.failures[config.id] = ConfigFailure(Status.CONSTRAINT, refusal)
                continue
            job = target.job(config)
            beside.artifacts[config.id] = None
            if job is not None:
                builder.submit(config, job, limit_s=limit)
        while builder.pending:
            for result in builder.ready():
                id = result.config.id
                beside.spend(result.config, FrozenMap({"build": result.seconds}))
                if result.status is Status.OK:
                    beside.artifacts[id], beside.facts[id] = result.artifact, result.facts
                else:
                    beside.failures[id] = ConfigFailure(result.status, result.error, result.limit)


def _look(
    beside: Beside, bench: Bench, marking: LaunchJournalOutside, config: Config, limit_s: float
) -> None:
    artifact = beside.artifacts[config.id]
    try:
        with marking.around([config], first=True):
            [look] = bench.measure(Visit(((config, artifact),), FIRST_SAMPLES, True, limit_s))
    except DeviceLostError as lost:
        if isinstance(lost.__cause__, ConfigFailure):
            beside.failures[config.id] = lost.__cause__
        raise
    except ConfigFailure as failure:
        look = failure
    if isinstance(look, ConfigFailure):
        beside.failures[config.id] = look
        return
    beside.spend(config, look.seconds)
    known = beside.facts.get(config.id, FrozenMap())
    beside.facts[config.id] = FrozenMap({**known, **look.facts})


def _take_rounds(
    beside: Beside,
    bench: Bench,
    marking: LaunchJournalOutside,
    configs: Sequence[Config],
    policy: DuelPolicy,
    limit_s: float,
) -> None:
    start = time.perf_counter()
    for turn in range(policy.max_rounds):
        standing = [config for config in configs if config.id not in beside.failures]
        spent = time.perf_counter() - start
        late = policy.max_seconds is not None and spent > policy.max_seconds
        if not standing or (late and turn >= policy.first_check):
            return
        order = standing[::-1] if turn % 2 else standing
        with marking.around(order, first=False):
            built = tuple((config, beside.artifacts[config.id]) for config in order)
            answers = bench.measure(Visit(built, 1, limit_s=limit_s))
        beside.rounds.append({})
        for config, one in zip(order, answers, strict=True):
            if isinstance(one, ConfigFailure):
                beside.failures[config.id] = one
                continue
            beside.spend(config, one.seconds)
            before, now = beside.timings.get(config.id), one.reading.timing()
            beside.timings[config.id] = now if before is None else before.extended(now)
            beside.rounds[-1][config.id] = now.median_ns

"""Schedules side by side."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from whet.builds.builder import Builder
from whet.builds.job import BuildResult
from whet.core.config import Config
from whet.core.errors import ConfigFailure, TuningFailedError
from whet.core.frozen import FrozenMap
from whet.core.intermediate import FACT
from whet.core.process import memory_info
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.engine import tune
from whet.engine.settings import Settings
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Bench, Sampled, Visit
from whet.measure.racing.duel import DuelPolicy
from whet.store import open_store
from whet.store.scanning import code_folder
from whet.targets.schedule.analysis import insight
from whet.targets.schedule.bindings import bindings
from whet.targets.schedule.compile import scheduled
from whet.targets.schedule.target import ScheduleTarget


@dataclass(frozen=True)
class ComparedSchedule:
    """What was measured, the program before and after, and what it amounts to. Where `kept`, the
    explorer has all of it under the id of the workload."""

    name: str
    config: str
    median_ns: float
    interval_ns: tuple[float, float] | None
    insight: str
    input_ir: str
    output_ir: str
    workload: str
    kept: bool


def compared(
    targets: Sequence[ScheduleTarget], settings: Settings, policy: DuelPolicy | None = None
) -> list[ComparedSchedule]:
    """The best config of each, tuned where the store has no result. These are then measured in
    turns and stored with their programs."""
    with open_store(settings.store, bundle=settings.bundle, wait_s=settings.store_wait_s) as store:
        configs = [tune(one, settings=settings, store=store).config for one in targets]
        folder = None if store.read_only else code_folder(store)
        keeping = [one if folder is None else one.keeping(folder.absolute()) for one in targets]
        chosen = list(zip(keeping, configs, strict=True))
        trials = measured_in_turns(chosen, settings, policy or DuelPolicy())
        if not store.read_only:
            for target in targets:
                store.put_workload(target.workload())
            store.append(trials)
    return [_compared(*pair) for pair in zip(targets, trials, strict=True)]


def _compared(target: ScheduleTarget, trial: Trial) -> ComparedSchedule:
    mlir = bindings()
    with tempfile.TemporaryDirectory() as folder, mlir.context(), mlir.ir.Location.unknown():
        payload = scheduled(mlir, target.source, trial.config, Path(folder))
        return ComparedSchedule(
            name=target.name,
            config=str(trial.config),
            median_ns=trial.median_ns or float("inf"),
            interval_ns=None if trial.timing is None else trial.timing.interval_ns,
            insight=insight(mlir, payload),
            input_ir=target.payload.text,
            output_ir=str(payload),
            workload=trial.workload_id,
            kept=FACT in trial.facts,
        )


# Taken before the turns, to load, check and warm a config; they count for nothing.
_FIRST_SAMPLES = 2


@dataclass
class _Measured:
    """A built config, and the process that runs it."""

    target: ScheduleTarget
    built: BuildResult
    bench: Bench
    limit_s: float | None
    timing: Timing | None = None
    cost: Cost = field(default_factory=Cost)

    def take(self, samples: int, first: bool = False) -> Timing:
        config = self.built.config
        visit = Visit(((config, self.built.artifact),), samples, first, self.limit_s)
        [answer] = self.bench.measure(visit)
        if not isinstance(answer, Sampled):
            raise _failed(self.target, config, answer)
        self.cost += Cost(answer.seconds)
        return answer.reading.timing()

    def trial(self) -> Trial:
        return Trial(
            workload_id=self.target.workload().id,
            config=self.built.config,
            status=Status.OK,
            timing=self.timing,
            cost=self.cost,
            facts=self.built.facts,
            created=time.time(),
        )


def measured_in_turns(
    chosen: Sequence[tuple[ScheduleTarget, Config]], settings: Settings, policy: DuelPolicy
) -> list[Trial]:
    """One config of each schedule, in turns: what slows the machine down for a while slows down all
    of them. As many samples of each as a duel may take; nothing is written down."""
    limits = BenchLimits(
        settings.memory_bytes or memory_info("MemAvailable"),
        True,
        settings.device_memory_bytes,
        lambda: settings.first_call_s,
    )
    with ExitStack() as stack:
        sides = [
            _Measured(
                target, built, stack.enter_context(target.bench(limits)), settings.run_limit_s
            )
            for (target, _), built in zip(chosen, _built(chosen, settings), strict=True)
        ]
        for side in sides:
            side.cost += Cost(FrozenMap({"build": side.built.seconds}))
            side.take(_FIRST_SAMPLES, first=True)
        start = time.perf_counter()
        for turn in range(policy.max_rounds):
            spent = time.perf_counter() - start
            late = policy.max_seconds is not None and spent > policy.max_seconds
            if late and turn >= policy.first_check:
                break
            for side in sides[::-1] if turn % 2 else sides:
                now = side.take(1)
                side.timing = now if side.timing is None else side.timing.extended(now)
    return [side.trial() for side in sides]


def _built(
    chosen: Sequence[tuple[ScheduleTarget, Config]], settings: Settings
) -> list[BuildResult]:
    """One after another: two of them may be the same config, of different scripts."""
    made = []
    with Builder(jobs=1, mode="spawn", limit_s=settings.build_limit_s) as builder:
        for target, config in chosen:
            job = target.job(config)
            assert job is not None
            builder.submit(config, job, limit_s=settings.build_limit_s)
            while builder.pending:
                for result in builder.ready():
                    if result.status is not Status.OK:
                        failure = ConfigFailure(result.status, result.error, result.limit)
                        raise _failed(target, config, failure)
                    made.append(result)
    return made


def _failed(target: ScheduleTarget, config: Config, failure: ConfigFailure) -> TuningFailedError:
    return TuningFailedError(f"'{target.name}' [{config}] works no longer: {failure}")

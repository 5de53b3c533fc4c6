"""Schedules side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.core.intermediate import FACT
from whet.core.trial import Trial
from whet.engine import tune
from whet.engine.settings import Settings
from whet.measure.racing.policy import DuelPolicy
from whet.store import open_store
from whet.store.scanning import code_folder
from whet.targets.schedule.bindings import bindings
from whet.targets.schedule.compile import scheduled
from whet.targets.schedule.insight import insight
from whet.targets.schedule.target import ScheduleTarget
from whet.targets.schedule.turns import measured_in_turns


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

"""A schedule as one side of a comparison."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from whet.engine import tune
from whet.engine.settings import Settings
from whet.targets.schedule.bindings import bindings
from whet.targets.schedule.compile import scheduled
from whet.targets.schedule.insight import insight
from whet.targets.schedule.target import ScheduleTarget


@dataclass(frozen=True)
class ComparedSchedule:
    """What was measured, the program before and after, and what it amounts to."""

    name: str
    config: str
    median_ns: float
    insight: str
    input_ir: str
    output_ir: str


def compared(target: ScheduleTarget, settings: Settings) -> ComparedSchedule:
    """Its best config; tuned where the store has no result."""
    result = tune(target, settings=settings, store=settings.store)
    mlir = bindings()
    with tempfile.TemporaryDirectory() as folder, mlir.context(), mlir.ir.Location.unknown():
        payload = scheduled(mlir, target.source, result.config, Path(folder))
        return ComparedSchedule(
            name=target.name,
            config=str(result.config),
            median_ns=result.best.median_ns or float("inf"),
            insight=insight(mlir, payload),
            input_ir=target.payload.text,
            output_ir=str(payload),
        )

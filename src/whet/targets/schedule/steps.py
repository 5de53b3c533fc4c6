"""What each step of a script does to the payload: the IR between any two, by replaying a prefix."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.core.config import Config
from whet.core.errors import ConfigFailure, UsageError
from whet.targets.schedule.bindings import bindings
from whet.targets.schedule.compile import ScheduleSource, scheduled
from whet.targets.schedule.script import entry, parsed, place_in, prefix


@dataclass(frozen=True)
class ScheduleStep:
    """Step 0 is the payload as it was given. `problem` says why a step could not be applied; there
    are none after it, and its `ir` is that of the step before."""

    number: int
    place: str
    operation: str
    ir: str
    problem: str = ""


def steps_of(source: ScheduleSource, config: Config) -> tuple[ScheduleStep, ...]:
    """Every operation of the sequence is a step; alternatives are one, whichever is taken."""
    found: list[ScheduleStep] = []
    for number, (place, operation) in enumerate(_listed(source)):
        try:
            found.append(ScheduleStep(number, place, operation, _replayed(source, config, number)))
        except ConfigFailure as failure:
            before = found[-1].ir if found else source.payload
            found.append(ScheduleStep(number, place, operation, before, failure.message))
            break
    return tuple(found)


def diff_of(before: ScheduleStep, after: ScheduleStep) -> list[str]:
    """Lines as `diff -u` has them; none where nothing has changed."""
    names = (f"step {before.number}", f"step {after.number}")
    lines = difflib.unified_diff(before.ir.splitlines(), after.ir.splitlines(), *names, lineterm="")
    return list(lines)


def step_at(steps: Sequence[ScheduleStep], number: int) -> ScheduleStep:
    if not 0 <= number < len(steps):
        raise UsageError(f"there is no step {number}; the script has steps 0 to {len(steps) - 1}")
    return steps[number]


def _listed(source: ScheduleSource) -> list[tuple[str, str]]:
    mlir = bindings()
    with mlir.context(), mlir.ir.Location.unknown():
        module = parsed(mlir, source.script, source.label)  # its operations do not keep it alive
        operations = list(entry(module, source.label).body.operations)[:-1]
        return [
            ("payload", ""),
            *((place_in(one, source.label), one.operation.name) for one in operations),
        ]


def _replayed(source: ScheduleSource, config: Config, number: int) -> str:
    mlir = bindings()
    with (
        tempfile.TemporaryDirectory() as folder,
        mlir.context(),
        mlir.ir.Location.unknown(),
    ):
        return str(scheduled(mlir, source, config, Path(folder), prefix(number)))

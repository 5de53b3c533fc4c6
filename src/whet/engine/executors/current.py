"""The executor that tunings of this process use, and what a run asks of it.

A program whose results are stored imports this too, so what an executor takes is imported where
there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.builds.shared import PoolSource
    from whet.engine.executors.protocol import DeviceExecutor
    from whet.engine.plan import Plan
    from whet.engine.target import Target

# Not a context variable: torch runs backward passes, which launch kernels, in threads of its own.
executor: DeviceExecutor | None = None


@contextmanager
def using(given: DeviceExecutor | None) -> Iterator[None]:
    global executor
    before, executor = executor, given
    try:
        yield
    finally:
        executor = before


# By how much the level of a config may differ between two devices that agree.
BETWEEN_DEVICES = 0.02


def plan_for(executor: DeviceExecutor, plan: Plan) -> Plan:
    """First looks of different devices are one visit further apart than those of one."""
    seats = executor.seats()
    if len(seats) == 1 and not seats[0].remote:  # and none will join
        return plan
    noise = max(plan.race.visit_noise, BETWEEN_DEVICES)
    return replace(plan, race=replace(plan.race, visit_noise=noise))


def builds_on(
    executor: DeviceExecutor, target: Target, ahead: PoolSource | None, jobs: int
) -> tuple[PoolSource | None, int | None]:
    """Where it is built, unless that has begun `ahead`, and how many builds run at once on other
    machines; None where there are none."""
    mode = _mode(target)
    pool = executor.builders(mode, jobs) if ahead is None else ahead
    return pool, executor.build_slots(mode)


def _mode(target: Target) -> str:
    from whet.engine.target import DividedBuilds

    divided = isinstance(target, DividedBuilds) and target.divides_builds
    return "divided" if divided else target.build_mode


def selected(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """`all`, or names such as `0,2,3`, of those that are known. Raises `UsageError`."""
    if text.strip() == "all":
        if not known:
            raise UsageError("--devices all: no GPU found on this machine")
        return tuple(known)
    wanted = [part.strip() for part in text.split(",")]
    if not all(wanted):
        raise UsageError(f"--devices '{text}' is not valid; use all, or numbers such as 0,1")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        there = f"this machine has {', '.join(known)}" if known else "this machine has no GPU"
        raise UsageError(f"--devices: no device {unknown[0]}; {there}")
    if len(set(wanted)) < len(wanted):
        raise UsageError(f"--devices '{text}' names a device twice")
    return tuple(wanted)

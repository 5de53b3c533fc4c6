"""What a run asks of its executor. One without never comes here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from whet.engine.plan import Plan
from whet.engine.target import BenchLimits, DividedBuilds, Target

if TYPE_CHECKING:
    from whet.builds.shared import PoolSource
    from whet.engine.executors.protocol import DeviceExecutor
    from whet.measure.bench.protocol import Bench
    from whet.store import Store

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
    divided = isinstance(target, DividedBuilds) and target.divides_builds
    return "divided" if divided else target.build_mode


def bench_for(
    executor: DeviceExecutor,
    target: Target,
    limits: BenchLimits,
    store: Store,
    say: Callable[[str], None],
) -> Bench:
    from whet.engine.executors.opening import bench_on  # few have more than one device

    return bench_on(executor, target, limits, store, say)

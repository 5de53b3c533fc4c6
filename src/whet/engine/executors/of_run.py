"""What a run asks of its executor, where it has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from whet.engine.plan import Plan
from whet.engine.target import BenchLimits, BuiltAhead, DividedBuilds, Target

if TYPE_CHECKING:
    from whet.builds import PoolSource
    from whet.engine.executors.protocol import DeviceExecutor
    from whet.measure import Bench
    from whet.store import Store

# By how much the level of a config may differ between two devices that agree.
BETWEEN_DEVICES = 0.02


def plan_for(executor: DeviceExecutor | None, plan: Plan) -> Plan:
    """First looks of different devices are one visit further apart than those of one."""
    if executor is None:
        return plan
    seats = executor.seats()
    if len(seats) == 1 and not seats[0].remote:  # and none will join
        return plan
    noise = max(plan.race.visit_noise, BETWEEN_DEVICES)
    return replace(plan, race=replace(plan.race, visit_noise=noise))


def pool_for(
    executor: DeviceExecutor | None, target: Target, jobs: int | None = None
) -> PoolSource | None:
    ahead = target.pool if isinstance(target, BuiltAhead) else None
    if ahead is not None or executor is None:
        return ahead
    return executor.builders(_mode(target), jobs)


def slots_for(executor: DeviceExecutor | None, target: Target) -> int | None:
    """How many builds run at once on other machines; None where there are none."""
    return None if executor is None else executor.build_slots(_mode(target))


def jobs_for(executor: DeviceExecutor | None, target: Target, jobs: int) -> int:
    """How many builds run at once."""
    return slots_for(executor, target) or jobs


def _mode(target: Target) -> str:
    divided = isinstance(target, DividedBuilds) and target.divides_builds
    return "divided" if divided else target.build_mode


def bench_for(
    executor: DeviceExecutor | None,
    target: Target,
    limits: BenchLimits,
    store: Store,
    say: Callable[[str], None],
) -> Bench:
    if executor is None:
        return target.bench(limits)
    from whet.engine.executors.opening import bench_on  # few have more than one device

    return bench_on(executor, target, limits, store, say)

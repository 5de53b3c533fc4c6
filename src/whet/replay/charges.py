"""What an evaluation would have cost, read off a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.core.status import Status
from whet.replay.table import Table, TableWorkload

NS_PER_S = 1e9

# Besides building and taking samples, what an evaluation spends on a config.
_AROUND = ("load", "first_call", "check", "framework")


def build_s(table: Table, at: int) -> float:
    """As recorded. Where nobody timed it, the median of those somebody did; a config refused by a
    constraint was then never built and costs nothing."""
    build = table.builds[at]
    if build.seconds is not None:
        return build.seconds
    return 0.0 if build.status is Status.CONSTRAINT else table.typical_build_s


@dataclass(frozen=True)
class Overhead:
    """What running a config costs beyond its samples: `once` for loading, checking and warming it
    up, `each` for what goes with every sample, such as clearing the cache and filling the queue."""

    once: float
    each: float

    @classmethod
    def of(cls, workload: TableWorkload, at: int) -> Overhead:
        """As recorded. Where no warm-up is known it is the first launch, else one like the rest."""
        spent = workload.seconds(at)
        visits = workload.samples(at)
        around = sum(spent.get(phase, 0.0) for phase in _AROUND)
        if not visits:
            return cls(around, 0.0)
        warm_up = spent.get("warmup")
        if warm_up is None:
            first = workload.first_ns(at)
            warm_up = (visits[0][0] if first is None else first) / NS_PER_S
        return cls(around + warm_up, _each(spent, visits[0]))


def _each(spent: Mapping[str, float], visit: Sequence[float]) -> float:
    measured = spent.get("measure")
    if measured is None:
        return 0.0
    kernel = spent.get("measure.kernel", sum(visit) / NS_PER_S)
    return max(0.0, measured - kernel) / len(visit)

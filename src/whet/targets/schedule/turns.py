"""One config of each of several schedules, measured in turns: what slows the machine down for a
while slows down all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from whet.builds import Builder, BuildResult
from whet.core.config import Config
from whet.core.errors import ConfigFailure, TuningFailedError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.engine.host import memory_info
from whet.engine.settings import Settings
from whet.engine.target import BenchLimits
from whet.measure import Bench, Sampled, Visit
from whet.measure.racing.policy import DuelPolicy
from whet.targets.schedule.target import ScheduleTarget

# Taken before the turns, to load, check and warm a config; they count for nothing.
_FIRST_SAMPLES = 2


@dataclass
class _Side:
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
    """As many samples of each as a duel may take; nothing is written down."""
    limits = BenchLimits(
        settings.memory_bytes or memory_info("MemAvailable"),
        True,
        settings.device_memory_bytes,
        lambda: settings.first_call_s,
    )
    with ExitStack() as stack:
        sides = [
            _Side(target, built, stack.enter_context(target.bench(limits)), settings.run_limit_s)
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

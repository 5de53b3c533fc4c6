"""Tuning without a device: a strategy asks, and a table answers."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.core.config import Config
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.replay.table import Table, TableWorkload
from whet.search import Strategy

UNLISTED = -1

NS_PER_S = 1e9

# Besides building and taking samples, what an evaluation spends on a config.
_AROUND = ("load", "first_call", "check", "framework")


@dataclass(frozen=True)
class Course:
    """How one simulated tuning went, evaluation by evaluation.

    `best_ns` is the true median of the config believed best, infinite before the first success;
    `evaluations` the indices of the configs asked for, -1 for one the table does not have;
    `seconds` what had been spent by then, `search_s` the strategy's share of it. Shorter than was
    allowed where the strategy had nothing left to ask, or past the horizon.
    """

    best_ns: tuple[float, ...]
    evaluations: tuple[int, ...]
    search_s: float
    seconds: tuple[float, ...]

    def fraction(self, evals: int, optimum_ns: float) -> float:
        """Of the optimum's speed after so many evaluations; 0 before the first success."""
        return optimum_ns / self.best_ns[min(evals, len(self.best_ns)) - 1] if self.best_ns else 0.0


@dataclass(frozen=True)
class Horizon:
    """The last evaluation and the last second that anybody looks at."""

    evals: int
    seconds: float

    def passed(self, evals: int, seconds: float) -> bool:
        return evals >= self.evals and seconds > self.seconds


def replay_space(table: Table, workload: TableWorkload) -> Space:
    """The configs whose outcome on the workload is known: as the author declared them where that
    is all of the space, else as a list."""
    tried = [
        config for at, config in enumerate(table.configs) if table.status(workload, at) is not None
    ]
    if table.declared is not None:
        space = table.space
        if space.count == len(tried) and all(config in space for config in tried):
            return space
    return Space(tried)


def simulate(
    table: Table,
    workload: TableWorkload,
    strategy: Strategy,
    evals: int,
    *,
    seed: int,
    batch: int = 1,
    samples: int = 3,
    even_builds: bool = False,
    horizon: Horizon | None = None,
) -> Course:
    """Asks and tells until `evals` configs have been evaluated, failures included, or until the
    horizon is passed.

    A measured config answers with `samples` of one of its visits, both drawn by `seed` and the
    config alone, so that all strategies see the same noise. The configs of one `batch` are built at
    the same time and measured one after another: they wait for the longest build or, with
    `even_builds`, as long as if the work were spread evenly.
    """
    lab = _Lab(table, workload, seed, samples)
    clock = time.perf_counter
    evaluations: list[int] = []
    best_ns: list[float] = []
    seconds: list[float] = []
    elapsed = search_s = 0.0
    while len(evaluations) < evals:
        if horizon is not None and horizon.passed(len(evaluations), elapsed):
            break
        began = clock()
        asked = strategy.ask(min(batch, evals - len(evaluations)))
        search = clock() - began
        if not asked:
            break
        answers = [lab.evaluate(config) for config in asked]
        builds = [answer.build_s for answer in answers]
        elapsed += search + (sum(builds) / len(builds) if even_builds else max(builds))
        for answer in answers:
            elapsed += answer.run_s
            evaluations.append(answer.at)
            best_ns.append(answer.best_ns)
            seconds.append(elapsed)
        began = clock()
        strategy.tell([answer.trial for answer in answers])
        told = clock() - began
        search_s += search + told
        elapsed += told
    return Course(tuple(best_ns), tuple(evaluations), search_s, tuple(seconds))


@dataclass(frozen=True)
class _Answer:
    at: int
    trial: Trial
    best_ns: float
    build_s: float
    run_s: float


class _Lab:
    """Answers for the device, and keeps the config that a tuner would believe to be the best."""

    def __init__(self, table: Table, workload: TableWorkload, seed: int, samples: int) -> None:
        self._table = table
        self._workload = workload
        self._workload_id = table.described(workload).id
        self._timer = table.origin.timer or "replay"
        self._seed = seed
        self._samples = samples
        optimum = workload.optimum
        self._quality = "clean" if optimum is None else workload.quality(optimum.index)
        self._believed_ns = self._best_ns = math.inf

    def evaluate(self, config: Config) -> _Answer:
        at = self._table.index(config)
        status = None if at is None else self._table.status(self._workload, at)
        if at is None or status is None:
            unlisted = Trial(self._workload_id, config, Status.CONSTRAINT, id=config.id)
            return _Answer(UNLISTED if at is None else at, unlisted, self._best_ns, 0.0, 0.0)
        timing = self._timing(at) if status.measured else None
        built = build_s(self._table, at)
        overhead = Overhead.of(self._workload, at)
        ran = overhead.once
        if timing is not None:
            ran += sum(timing.samples) / NS_PER_S + overhead.each * len(timing.samples)
            self._believe(at, timing)
        build = self._table.builds[at]
        trial = Trial(
            workload_id=self._workload_id,
            config=self._table.configs[at],
            status=status,
            timing=timing,
            cost=Cost.of(build=built, measure=ran),
            facts=build.facts,
            error=build.error or self._workload.error(at),
            id=config.id,
        )
        return _Answer(at, trial, self._best_ns, built, ran)

    def _timing(self, at: int) -> Timing:
        draw = random.Random(f"{self._seed} {at}")
        visit = draw.choice(self._workload.samples(at))
        taken = draw.sample(visit, min(self._samples, len(visit)))
        origin = self._table.origin
        return Timing(tuple(taken), self._timer, l2=origin.l2, quality=self._workload.quality(at))

    def _believe(self, at: int, timing: Timing) -> None:
        """Only what was timed as cleanly as the optimum is compared with the best so far."""
        if timing.quality == self._quality and timing.median_ns < self._believed_ns:
            self._believed_ns = timing.median_ns
            self._best_ns = self._workload.median_ns(at) or math.inf


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

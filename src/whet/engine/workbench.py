"""What both halves of a tuning work with: build, load, sample, and the race they feed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.build import Builder, BuildResult
from whet.core.budget import Budget
from whet.core.cost import Cost
from whet.core.errors import ConfigFailure
from whet.core.event import BuildFinished, MeasureStarted
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.trial import Limit
from whet.engine.ledger import WallLedger
from whet.engine.plan import Plan
from whet.engine.recorder import Candidate, Recorder
from whet.engine.target import Target
from whet.measure import Bench, Exit, FirstLook, Race


class OutOfTime(Exception):
    """The budget ended in the middle of something; nothing is known about that config."""


@dataclass
class Workbench:
    """What both halves of a tuning work with."""

    target: Target
    builder: Builder
    bench: Bench
    race: Race
    plan: Plan
    recorder: Recorder
    ledger: WallLedger
    run_limit_s: float
    jobs: int
    budget: Budget
    candidates: dict[str, Candidate] = field(default_factory=dict)
    quickest_look_s: float | None = None

    @property
    def seconds_left(self) -> float:
        if self.budget.seconds is None:
            return float("inf")
        return self.budget.seconds - self.ledger.elapsed

    @property
    def look_limit_s(self) -> float:
        """How long a first look may take: a config that needs many times what a good one needs
        has lost already, so a hang costs seconds even under a generous limit."""
        limit = self.run_limit_s
        if self.quickest_look_s is not None:
            limit = min(limit, 2.0 + 50.0 * self.quickest_look_s)
        return limit

    def built(self, result: BuildResult) -> Candidate:
        candidate = self.candidates[result.config.id]
        stages = {f"build.{name}": seconds for name, seconds in result.stages.items()}
        candidate.cost += Cost(FrozenMap({"build": result.seconds, **stages}))
        self.recorder.emit(
            BuildFinished(result.config, result.seconds, ok=result.status is Status.OK)
        )
        if result.status is not Status.OK:
            raise ConfigFailure(result.status, result.error, result.limit)
        candidate.artifact = result.artifact
        candidate.facts = FrozenMap({**candidate.facts, **result.facts})
        candidate.ready = True
        return candidate

    def look(self, candidate: Candidate) -> tuple[float, ...]:
        """Loads, checks and warms a config and takes its first samples."""
        self.recorder.emit(MeasureStarted(candidate.config))
        limit = self.look_limit_s
        allowed = min(limit, max(0.5, self.seconds_left))
        parts: dict[str, float] = {}
        start = time.perf_counter()
        with self.ledger.measuring(parts):
            try:
                look = self.bench.first(
                    candidate.config, candidate.artifact, self.plan.first_samples, limit_s=allowed
                )
            except ConfigFailure as failure:
                parts["measure"] = time.perf_counter() - start
                candidate.cost += Cost.of(measure=parts["measure"])
                if failure.status is not Status.RUN_TIMEOUT:
                    raise
                if allowed < limit:
                    raise OutOfTime from None
                raise self._cut(failure, limit) from None
            parts.update(look.seconds)
        self._looked(candidate, look, time.perf_counter() - start)
        return look.reading.samples

    def looks(self, candidates: Sequence[Candidate]) -> dict[str, ConfigFailure]:
        """The same for many short kernels at once. Who fails is in the answer."""
        limit = self.look_limit_s
        parts: dict[str, float] = {}
        with self.ledger.measuring(parts):
            taken = self.bench.looks(
                [(candidate.config, candidate.artifact) for candidate in candidates],
                self.plan.first_samples,
                limit_s=limit,
            )
            parts.update(
                sum((Cost(o.seconds) for o in taken if isinstance(o, FirstLook)), Cost()).work
            )
        failures: dict[str, ConfigFailure] = {}
        for candidate, one in zip(candidates, taken, strict=True):
            if isinstance(one, FirstLook):
                self._looked(candidate, one, sum(one.seconds.values()))
            elif one.status is Status.RUN_TIMEOUT:
                failures[candidate.id] = self._cut(one, limit)
            else:
                failures[candidate.id] = one
        return failures

    def _looked(self, candidate: Candidate, look: FirstLook, took: float) -> None:
        self.quickest_look_s = min(took, self.quickest_look_s or took)
        candidate.cost += Cost(look.seconds)
        candidate.timing = look.reading.timing()
        candidate.facts = FrozenMap({**candidate.facts, **look.facts})

    def sample(self, candidate: Candidate, samples: int) -> bool:
        """Takes further samples, of a stored config after building and checking it again.

        False when it failed or the time ran out; a failure is then written down.
        """
        try:
            if candidate.timing is None:
                self._build(candidate)
                new = self.look(candidate)
            else:
                new = self._more(candidate, samples)
        except OutOfTime:
            return False
        except ConfigFailure as failure:
            self.fail(candidate, failure)
            return False
        self.put_out(self.race.record(candidate.id, new))
        return True

    def round(self, rivals: Sequence[Candidate]) -> dict[str, float]:
        """One sample of each, in this order; who fails is out of the race and not in the answer."""
        parts: dict[str, float] = {}
        with self.ledger.measuring(parts):
            turn = self.bench.round(
                [(rival.config, rival.artifact) for rival in rivals], limit_s=self.look_limit_s
            )
            parts.update(turn.seconds)
        share = Cost(FrozenMap({name: s / len(rivals) for name, s in turn.seconds.items()}))
        for rival in rivals:
            reading, failure = turn.readings.get(rival.id), turn.failures.get(rival.id)
            if failure is not None:
                self.fail(rival, failure)
            elif reading is not None and rival.timing is not None:
                rival.timing = rival.timing.extended(reading.timing())
                rival.cost += share
        return turn.times

    def fail(self, candidate: Candidate, failure: ConfigFailure) -> None:
        """A config that was in the race broke down."""
        self.recorder.failed(candidate, failure)
        self.put_out(self.race.drop(candidate.id, failure.message))

    def put_out(self, exits: tuple[Exit, ...]) -> None:
        """Writes down who has just lost the race, and lets go of what it holds."""
        if not exits:
            return
        losers = [(self.candidates[exit.id], Status.OUTRACED, exit.reason) for exit in exits]
        self.recorder.measured_all(losers)
        for loser, _, _ in losers:
            self.bench.forget(loser.config)

    def _more(self, candidate: Candidate, samples: int) -> tuple[float, ...]:
        assert candidate.timing is not None
        parts: dict[str, float] = {}
        with self.ledger.measuring(parts):
            reading, seconds = self.bench.sample(
                candidate.config, candidate.artifact, samples, limit_s=self.look_limit_s
            )
            parts.update(seconds)
        candidate.cost += Cost(seconds)
        candidate.timing = candidate.timing.extended(reading.timing())
        return reading.samples

    def _build(self, candidate: Candidate) -> None:
        job = self.target.job(candidate.config)
        if job is None or candidate.ready:
            candidate.ready = True
            return
        self.builder.submit(candidate.config, job, priority=-1)
        with self.ledger.phase("waiting"):
            results: list[BuildResult] = []
            while not results and self.seconds_left > 0:
                results = self.builder.ready(min(1.0, self.seconds_left))
        if not results:
            raise OutOfTime
        self.built(results[0])

    def _cut(self, failure: ConfigFailure, limit: float) -> ConfigFailure:
        """The limit that was set is what a later run must raise, however early this one cut."""
        text = failure.message
        if limit < self.run_limit_s:
            text += f", while the quickest config needed {self.quickest_look_s or 0:.2g} s in all"
        return ConfigFailure(failure.status, text, Limit("run_s", self.run_limit_s))

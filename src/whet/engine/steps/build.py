"""Builds: what is submitted, in which order, for how long, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from whet.builds.builder import ENOUGH, Builder, cut_for
from whet.builds.job import BuildResult
from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.event import BuildFinished
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.trial import Cost, Trial
from whet.engine.accounts.ledger import WallLedger
from whet.engine.recall.expectation import Expectation
from whet.engine.recovery.watchdog import Watchdog
from whet.engine.steps.record import Candidate, Recorder
from whet.engine.target import Target

# Before all others, whatever is expected of them.
AT_ONCE = -1


@dataclass
class Builds:
    """The builds of one run.

    `relatives` gives trials of the same kernel on other keys; it is asked only where builds wait.
    `never_cut` are configs that get all of `limit_s`, besides the author's first. `at_once` is how
    many builds run at once on other machines; None where they run here, whose cores are few.
    """

    target: Target
    builder: Builder
    recorder: Recorder
    ledger: WallLedger
    watch: Watchdog
    limit_s: float
    candidates: dict[str, Candidate]
    relatives: Callable[[], Sequence[Trial]] = tuple
    never_cut: Collection[Config] = ()
    at_once: int | None = None
    _seconds: dict[str, float] = field(default_factory=dict)
    _expected: Expectation | None = None

    def submit(self, candidate: Candidate) -> None:
        """One that has nothing to build is `ready` at once."""
        config = candidate.config
        job = self.target.job(config)
        if job is None:
            candidate.ready = True
        elif config == self.target.space.first or config in self.never_cut:
            # The author's own is what people compare with, so its build is not cut; nor are those
            # that were the fastest elsewhere.
            self.builder.submit(config, job, AT_ONCE, limit_s=self.limit_s)
        else:
            self.builder.submit(config, job, priority=candidate.order)

    def put_in_order(self, *, last: bool = False) -> None:
        """What is expected to be good and cheap is built first, after the author's own; where
        these are the `last`, not what all machines would have to wait for."""
        if self.target.shares_host:
            if self.at_once is None:
                return
            last = True  # nothing is measured before the batch is built
        waiting = [c for c in self.builder.waiting() if c != self.target.space.first]
        if len(waiting) < 2:
            return
        with self.ledger.phase("search"):
            if self._expected is None:
                self._expected = self._recalled()
            order = self._expected.order(waiting, self.at_once if last else None)
        if order is not None:
            self.builder.reorder({config.id: place for place, config in enumerate(order)})

    def collect(self, timeout: float) -> list[Candidate | tuple[Candidate, ConfigFailure]]:
        """What has been built, or has failed to be, as soon as that is anything; nothing where
        builds are given up."""
        done: list[Candidate | tuple[Candidate, ConfigFailure]] = []
        for result in self._results(timeout):
            self._learn_from(result)
            try:
                done.append(self._built(result))
            except ConfigFailure as failure:
                done.append((self.candidates[result.config.id], failure))
        return done

    def build_now(self, candidate: Candidate, seconds_left: Callable[[], float]) -> bool:
        """Before all others, and waited for; False where the time ran out first."""
        job = None if candidate.ready else self.target.job(candidate.config)
        if job is None:
            candidate.ready = True
            return True
        self.builder.submit(candidate.config, job, AT_ONCE, limit_s=self.limit_s)
        while (left := seconds_left()) > 0 and not self.watch.gave_up:
            for result in self._results(min(3600.0, left)):
                if result.config.id == candidate.id:
                    self._built(result)
                    return True
        return False

    def measured(self, candidate: Candidate) -> None:
        """What it took to build counts once it has led to something."""
        seconds = candidate.cost.work.get("build", 0.0)
        if seconds:
            self._seconds[candidate.id] = seconds
        timing = candidate.timing
        if self._expected is not None and timing is not None and not timing.host_bound:
            self._expected.timed(candidate.config, timing.median_ns)

    def cut(self, may_win: Callable[[str], bool]) -> None:
        """Builds that take many times longer than those that led to something are given up."""
        if self.builder.pending and len(self._seconds) >= ENOUGH:
            standing = [seconds for id, seconds in self._seconds.items() if may_win(id)]
            self.builder.cut(cut_for(standing, len(self._seconds), self.limit_s))

    def _results(self, timeout: float) -> list[BuildResult]:
        found: list[BuildResult] = []
        end = time.monotonic() + timeout
        with self.ledger.phase("waiting"), self.watch.building(self.builder, self.limit_s):
            while not found and self.builder.pending and not self.watch.gave_up:
                left = end - time.monotonic()
                found = self.builder.ready(max(0.0, min(1.0, left)))
                if left <= 0:
                    break
        return found

    def _built(self, result: BuildResult) -> Candidate:
        candidate = self.candidates[result.config.id]
        if not result.remembered:
            stages = {f"build.{name}": seconds for name, seconds in result.stages.items()}
            candidate.cost += Cost(FrozenMap({"build": result.seconds, **stages}))
            self.recorder.emit(
                BuildFinished(
                    result.config,
                    result.seconds,
                    ok=result.status is Status.OK,
                    worker=result.worker,
                    started=result.started,
                    stages=result.stages,
                    status=result.status,
                )
            )
        if result.status is not Status.OK:
            raise ConfigFailure(result.status, result.error, result.limit)
        candidate.artifact = result.artifact
        candidate.facts = FrozenMap({**candidate.facts, **result.facts})
        candidate.ready = True
        return candidate

    def _learn_from(self, result: BuildResult) -> None:
        took_its_time = result.status in (Status.OK, Status.BUILD_TIMEOUT)
        if self._expected is not None and took_its_time and not result.remembered:
            self._expected.built(result.config, result.seconds)

    def _recalled(self) -> Expectation:
        """What other keys taught, and this run so far."""
        expected = Expectation(self.target.space)
        for trial in self.relatives():
            if trial.status.measured and trial.timing is not None:
                expected.timed(trial.config, trial.timing.median_ns, where=trial.workload_id)
            if trial.status.measured or trial.status is Status.BUILD_TIMEOUT:
                expected.built(trial.config, trial.cost.work.get("build", 0.0))
        for candidate in self.candidates.values():
            if candidate.timing is not None:
                expected.timed(candidate.config, candidate.timing.median_ns)
                expected.built(candidate.config, candidate.cost.work.get("build", 0.0))
        return expected

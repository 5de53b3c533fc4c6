"""The first half of a tuning: ask, build, take a first look, tell."""

from __future__ import annotations

import heapq

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.core.trial import Trial
from whet.engine.recorder import Candidate
from whet.engine.workbench import OutOfTime, Workbench
from whet.measure import Exit
from whet.search import Strategy

# Builds per core in one batch, where building must pause for measuring. It starts small, so that
# there is a best soon, and doubles, so that every core is busy to the end of most batches.
FIRST_BATCH, LARGEST_BATCH = 2, 12


class Exploration:
    """Gives every config the strategy asks for a build and a first look, within the budget."""

    def __init__(self, bench: Workbench, strategy: Strategy, reserve_s: float) -> None:
        self._b = bench
        self._strategy = strategy
        self._reserve_s = reserve_s
        # In the order they were asked for, whichever build ends first.
        self._built: list[tuple[int, Candidate]] = []
        self._batch = FIRST_BATCH
        self._asked = 0
        self._exhausted = False
        self._cut_short = False

    @property
    def complete(self) -> bool:
        """True when every config the strategy could ask for has its outcome."""
        return self._exhausted and not self._cut_short

    def run(self) -> None:
        while True:
            self._top_up()
            self._collect(block=not self._may_measure)
            if self._b.seconds_left <= self._reserve_s:
                self._cut_short = True
                self._b.builder.cancel_all()
                break
            if self._may_measure:
                self._look_at(heapq.heappop(self._built)[1])
                self._recheck_the_best()
            elif not self._b.builder.pending and (self._exhausted or self._room == 0):
                break

    @property
    def _may_measure(self) -> bool:
        # Where builds and runs share the cores, a build next door would be part of the timing.
        quiet = not self._b.target.shares_host or not self._b.builder.pending
        return bool(self._built) and quiet

    @property
    def _room(self) -> int:
        """How many more configs the budget allows."""
        trials = self._b.budget.trials
        return 1 << 30 if trials is None else max(0, trials - self._asked)

    def _top_up(self) -> None:
        waiting = self._b.builder.pending + len(self._built)
        if self._b.target.shares_host:
            wanted = self._batch * self._b.jobs if waiting == 0 else 0
        else:
            wanted = 4 * self._b.jobs - waiting
        wanted = min(wanted, self._room)
        if wanted <= 0 or self._exhausted:
            return
        with self._b.ledger.phase("search"):
            configs = self._strategy.ask(wanted)
        self._exhausted = not configs
        self._batch = min(2 * self._batch, LARGEST_BATCH)
        for config in configs:
            self._start(config)

    def _start(self, config: Config) -> None:
        candidate = Candidate(config, order=len(self._b.candidates))
        self._b.candidates[config.id] = candidate
        self._asked += 1
        reason = self._b.target.reject(config)
        if reason is not None:
            self._fail(candidate, ConfigFailure(Status.CONSTRAINT, reason))
            return
        job = self._b.target.job(config)
        if job is None:
            candidate.ready = True
            self._push(candidate)
        else:
            self._b.builder.submit(config, job, priority=candidate.order)

    def _collect(self, *, block: bool) -> None:
        builder = self._b.builder
        if not builder.pending:
            return
        timeout = max(0.0, min(3600.0, self._b.seconds_left - self._reserve_s)) if block else 0.0
        with self._b.ledger.phase("waiting"):
            results = builder.ready(timeout)
        for result in results:
            try:
                self._push(self._b.built(result))
            except ConfigFailure as failure:
                self._fail(self._b.candidates[result.config.id], failure)

    def _push(self, candidate: Candidate) -> None:
        heapq.heappush(self._built, (candidate.order, candidate))

    def _look_at(self, candidate: Candidate) -> None:
        try:
            samples = self._b.look(candidate)
        except OutOfTime:
            self._cut_short = True
            return
        except ConfigFailure as failure:
            self._fail(candidate, failure)
            return
        exits: tuple[Exit, ...] = ()
        if self._b.plan.fixed_samples is None:
            self._b.race.enter(candidate.id, candidate.order)
            exits = self._b.race.record(candidate.id, samples)
        if candidate.id not in {exit.id for exit in exits}:
            self._b.recorder.consider_best(self._b.recorder.measured(candidate, Status.OK))
        self._b.put_out(exits)
        assert candidate.trial is not None
        self._tell(candidate.trial)

    def _recheck_the_best(self) -> None:
        """The race may want the best sampled again, to know whether the device changed pace."""
        if self._b.target.shares_host and self._b.builder.pending:
            return
        for request in self._b.race.plan(more=True):
            self._b.sample(self._b.candidates[request.id], request.samples)

    def _fail(self, candidate: Candidate, failure: ConfigFailure) -> None:
        self._tell(self._b.recorder.failed(candidate, failure))

    def _tell(self, trial: Trial) -> None:
        with self._b.ledger.phase("search"):
            self._strategy.tell([trial])

"""The first half of a tuning: ask, build, take a first look, tell."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence

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

# Short kernels are looked at together, as many as fit into this: a message to the measuring process
# costs more than looking at a kernel of a microsecond does.
MOMENT_S = 0.03


class Exploration:
    """Gives every config the strategy asks for a build and a first look, within the budget."""

    def __init__(self, bench: Workbench, strategy: Strategy, reserve_s: float) -> None:
        self._b = bench
        self._strategy = strategy
        self._reserve_s = reserve_s
        # In the order they were asked for, whichever build ends first.
        self._built: list[tuple[int, Candidate]] = []
        self._batch = FIRST_BATCH
        self._measured_as: dict[Hashable, Candidate] = {}
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
                self._look_at(self._next())
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

    def _next(self) -> list[Candidate]:
        """The next to look at: one, or of very short kernels as many as a moment allows."""
        quickest = self._b.quickest_look_s
        many = 1 if quickest is None else int(MOMENT_S / quickest)
        if self._b.seconds_left < 10.0:  # then every look is watched by the clock
            many = 1
        return [heapq.heappop(self._built)[1] for _ in range(min(max(1, many), len(self._built)))]

    def _is_twin(self, candidate: Candidate) -> bool:
        """The same binary again: what was measured of its twin holds for it."""
        same = self._b.target.twin(candidate.config, candidate.facts)
        twin = None if same is None else self._measured_as.get(same)
        if twin is None or twin.timing is None:
            return False
        candidate.timing, candidate.facts = twin.timing, twin.facts
        reason = f"the same binary as [{twin.config}]"
        self._tell([self._b.recorder.measured(candidate, Status.OUTRACED, reason)])
        return True

    def _look_at(self, candidates: Sequence[Candidate]) -> None:
        candidates = [one for one in candidates if not self._is_twin(one)]
        if not candidates:
            return
        failures: dict[str, ConfigFailure] = {}
        if len(candidates) > 1:
            failures = self._b.looks(candidates)
        else:
            try:
                self._b.look(candidates[0])
            except OutOfTime:
                self._cut_short = True
                return
            except ConfigFailure as failure:
                failures[candidates[0].id] = failure
        for candidate in candidates:
            if candidate.id in failures:
                self._fail(candidate, failures[candidate.id])
        self._enter_race([c for c in candidates if c.id not in failures])

    def _enter_race(self, candidates: Sequence[Candidate]) -> None:
        race, recorder = self._b.race, self._b.recorder
        exits: list[Exit] = []
        for candidate in candidates:
            same = self._b.target.twin(candidate.config, candidate.facts)
            if same is not None:
                self._measured_as.setdefault(same, candidate)
            if self._b.plan.fixed_samples is None and candidate.timing is not None:
                exits += race.enter(candidate.id, candidate.order)
                exits += race.record(candidate.id, candidate.timing.samples)
        out = {exit.id for exit in exits}
        still_in = [candidate for candidate in candidates if candidate.id not in out]
        for trial in recorder.measured_all([(c, Status.OK, "") for c in still_in]):
            recorder.consider_best(trial)
        self._b.put_out(tuple(exits))
        self._tell([c.trial for c in candidates if c.trial is not None])

    def _recheck_the_best(self) -> None:
        """The race may want the best sampled again, to know whether the device changed pace."""
        if self._b.target.shares_host and self._b.builder.pending:
            return
        for request in self._b.race.plan(more=True):
            self._b.sample(self._b.candidates[request.id], request.samples)

    def _fail(self, candidate: Candidate, failure: ConfigFailure) -> None:
        self._tell([self._b.recorder.failed(candidate, failure)])

    def _tell(self, trials: Sequence[Trial]) -> None:
        with self._b.ledger.phase("search"):
            self._strategy.tell(trials)

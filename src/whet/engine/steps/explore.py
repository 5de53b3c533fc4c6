"""The first half of a tuning: ask, build, take a first look, tell."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Hashable, Sequence

from whet.builds import BuildResult, cut_for
from whet.core.config import Config
from whet.core.coverage import Stop
from whet.core.errors import ConfigFailure, HostFailure
from whet.core.status import Status
from whet.core.trial import Trial
from whet.engine.recall.expectation import Expectation
from whet.engine.steps.record import Candidate
from whet.engine.steps.workbench import HOPELESS, HOST_BOUND, OutOfTime, Workbench
from whet.measure import Exit
from whet.search import Strategy
from whet.workers import no_forks

# Builds per core in one batch, where building must pause for measuring. It starts small, so that
# there is a best soon, and doubles, so that every core is busy to the end of most batches.
FIRST_BATCH, LARGEST_BATCH = 2, 12

# Short kernels are looked at together, as many as fit into this: a message to the measuring process
# costs more than looking at a kernel of a microsecond does.
MOMENT_S = 0.03

# Before all others, whatever is expected of them.
AT_ONCE = -1


class Exploration:
    """Gives every config the strategy asks for a build and a first look, within the budget.

    `relatives` gives trials of the same kernel on other keys; it is asked only where builds wait.
    `suspects` (ids) may end this process: they come after all others, one at a time. `wanted` are
    looked at whatever the strategy asks for.
    """

    def __init__(
        self,
        bench: Workbench,
        strategy: Strategy,
        reserve_s: float,
        relatives: Callable[[], Sequence[Trial]] = tuple,
        known: Container[str] = (),
        suspects: Container[str] = (),
        wanted: Sequence[Config] = (),
    ) -> None:
        self._b = bench
        self._strategy = strategy
        self._reserve_s = reserve_s
        self._relatives = relatives
        self._known = known
        self._suspects = suspects
        self._wanted = wanted
        self._held: list[Candidate] = []
        # In the order they were asked for, whichever build ends first.
        self._built: list[tuple[int, Candidate]] = []
        self._batch = FIRST_BATCH
        self._measured_as: dict[Hashable, Candidate] = {}
        self._host_bound: list[Candidate] = []
        self._build_s: dict[str, float] = {}
        self._expected: Expectation | None = None
        self._asked = 0
        self._exhausted = False
        self._cut_short: Stop | None = None

    @property
    def complete(self) -> bool:
        """True when every config the strategy could ask for has its outcome."""
        return self._exhausted and self._cut_short is None

    @property
    def stopped(self) -> Stop:
        """Why no more configs were tried; where the strategy has no more to ask for, it is up to
        the caller to know whether these were all."""
        return self._cut_short or (Stop.SEARCH if self._exhausted else Stop.TRIALS)

    def run(self) -> None:
        while True:
            self._top_up()
            self._put_in_order()
            try:
                self._collect(block=not self._may_measure)
            except HostFailure:
                self._look_at_the_rest()
                raise
            if self._b.seconds_left <= self._reserve_s:
                self._cut_short = Stop.TIME
                self._b.builder.cancel_all()
                break
            if self._b.watch.gave_up:
                self._cut_short = Stop.BUILDS
                break
            if self._may_measure:
                candidates = self._distinct(self._next())
                if candidates:
                    self._look_at(candidates)
                self._recheck_the_best()
                self._cut_builds()
            elif not self._b.builder.pending and (self._exhausted or self._room == 0):
                if not self._held:
                    break
                self._built = [(0, self._held.pop(0))]
        self._settle_host_bound()

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
        # A strategy that learns is asked for no more at once than keeps the cores busy.
        guided = self._strategy.guided
        if self._b.target.shares_host:
            wanted = (1 if guided else self._batch) * self._b.jobs if waiting == 0 else 0
        else:
            wanted = (1 if guided else 4) * self._b.jobs - waiting
        wanted = min(wanted, self._room)
        if wanted <= 0 or self._exhausted:
            return
        authors = [] if self._asked else [*self._authors_first(), *self._wanted]
        more = max(0, wanted - len(authors))
        with self._b.ledger.phase("search"), no_forks():
            configs = self._strategy.ask(more)
        self._exhausted = not configs and more > 0
        self._batch = min(2 * self._batch, LARGEST_BATCH)
        new = [config for config in configs if config.id not in self._b.candidates]
        configs = list(dict.fromkeys((*authors, *new)))
        rejected = [found for config in configs if (found := self._start(config))]
        self._fail(rejected)

    def _authors_first(self) -> list[Config]:
        """Whatever the strategy thinks of it: it is what people have now, and compare with."""
        first = self._b.target.space.first
        tried = first is None or first.id in self._b.candidates or first.id in self._known
        return [] if tried or first is None else [first]

    def _start(self, config: Config) -> tuple[Candidate, ConfigFailure] | None:
        candidate = Candidate(config, order=len(self._b.candidates))
        self._b.candidates[config.id] = candidate
        self._asked += 1
        reason = self._b.target.reject(config)
        if reason is not None:
            return candidate, ConfigFailure(Status.CONSTRAINT, reason)
        job = self._b.target.job(config)
        if job is None:
            candidate.ready = True
            self._push(candidate)
        elif config == self._b.target.space.first or config in self._wanted:
            # The author's own is what people compare with, so its build is not cut; nor are those
            # that were the fastest elsewhere.
            self._b.builder.submit(config, job, AT_ONCE, limit_s=self._b.build_limit_s)
        else:
            self._b.builder.submit(config, job, priority=candidate.order)
        return None

    def _collect(self, *, block: bool) -> None:
        builder = self._b.builder
        if not builder.pending:
            return
        timeout = max(0.0, min(3600.0, self._b.seconds_left - self._reserve_s)) if block else 0.0
        results = self._b.results(timeout)
        failed: list[tuple[Candidate, ConfigFailure]] = []
        for result in results:
            self._learn_from(result)
            try:
                self._push(self._b.built(result))
            except ConfigFailure as failure:
                failed.append((self._b.candidates[result.config.id], failure))
        self._fail(failed)

    def _look_at_the_rest(self) -> None:
        """Nothing more can be built; the best may be among what is."""
        self._b.builder.cancel_all()
        while self._built and self._b.seconds_left > self._reserve_s:
            candidates = self._distinct(self._next())
            if candidates:
                self._look_at(candidates)

    def _push(self, candidate: Candidate) -> None:
        if candidate.id in self._suspects:
            self._held.append(candidate)
            return
        heapq.heappush(self._built, (candidate.order, candidate))

    def _learn_from(self, result: BuildResult) -> None:
        took_its_time = result.status in (Status.OK, Status.BUILD_TIMEOUT)
        if self._expected is not None and took_its_time and not result.remembered:
            self._expected.built(result.config, result.seconds)

    def _put_in_order(self) -> None:
        """What is expected to be good and cheap is built first, after the author's own."""
        if self._b.target.shares_host:
            return
        waiting = [c for c in self._b.builder.waiting() if c != self._b.target.space.first]
        if len(waiting) < 2:
            return
        with self._b.ledger.phase("search"):
            if self._expected is None:
                self._expected = self._recalled()
            order = self._expected.order(waiting)
        if order is not None:
            self._b.builder.reorder({config.id: place for place, config in enumerate(order)})

    def _recalled(self) -> Expectation:
        """What other keys taught, and this run so far."""
        expected = Expectation(self._b.target.space)
        for trial in self._relatives():
            if trial.status.measured and trial.timing is not None:
                expected.timed(trial.config, trial.timing.median_ns, where=trial.workload_id)
            if trial.status.measured or trial.status is Status.BUILD_TIMEOUT:
                expected.built(trial.config, trial.cost.work.get("build", 0.0))
        for candidate in self._b.candidates.values():
            if candidate.timing is not None:
                expected.timed(candidate.config, candidate.timing.median_ns)
                expected.built(candidate.config, candidate.cost.work.get("build", 0.0))
        return expected

    def _cut_builds(self) -> None:
        """Builds that take many times longer than those that led to something are given up."""
        if self._b.builder.pending and self._b.plan.fixed_samples is None:
            race = self._b.race
            standing = [s for id, s in self._build_s.items() if race.verdict(id) == "in"]
            self._b.builder.cut(cut_for(standing, len(self._build_s), self._b.build_limit_s))

    def _next(self) -> list[Candidate]:
        """The next to look at: one, or of very short kernels as many as a moment allows."""
        quickest = self._b.quickest_look_s
        many = 1 if quickest is None else int(MOMENT_S / quickest)
        slow_to_begin = self._b.longest_first_call_s > MOMENT_S
        if slow_to_begin or self._b.seconds_left < 10.0:  # then every look is watched by the clock
            many = 1
        return [heapq.heappop(self._built)[1] for _ in range(min(max(1, many), len(self._built)))]

    def _distinct(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """One of each binary that has not been measured; its twins wait for what comes of it."""
        chosen: list[Candidate] = []
        seen: set[Hashable] = set()
        for candidate in candidates:
            same = self._b.target.twin(candidate.config, candidate.facts)
            if same in seen:
                self._push(candidate)
            elif not self._is_twin(candidate):
                chosen.append(candidate)
                seen.update(() if same is None else (same,))
        return chosen

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
        failures: dict[str, ConfigFailure] = {}
        if len(candidates) > 1:
            failures = self._b.looks(candidates)
        else:
            try:
                self._b.look(candidates[0])
            except OutOfTime:
                self._cut_short = Stop.TIME
                return
            except ConfigFailure as failure:
                failures[candidates[0].id] = failure
        self._fail([(c, failures[c.id]) for c in candidates if c.id in failures])
        self._measured([c for c in candidates if c.id not in failures])

    def _measured(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            assert candidate.timing is not None
            same = self._b.target.twin(candidate.config, candidate.facts)
            if same is not None:
                self._measured_as.setdefault(same, candidate)
            build_s = candidate.cost.work.get("build", 0.0)
            if build_s:
                self._build_s[candidate.id] = build_s
            if self._expected is not None and not candidate.timing.host_bound:
                self._expected.timed(candidate.config, candidate.timing.median_ns)
        held = [candidate for candidate in candidates if _is_host_bound(candidate)]
        self._host_bound += held
        self._b.put_out((), still_in=held)
        self._enter_race([c for c in candidates if not _is_host_bound(c)])

    def _enter_race(self, candidates: Sequence[Candidate]) -> None:
        exits: list[Exit] = []
        for candidate in candidates:
            if candidate.hopeless:
                exits.append(Exit(candidate.id, HOPELESS))
            elif self._b.plan.fixed_samples is None and candidate.timing is not None:
                exits += self._b.race.enter(candidate.id, candidate.order)
                exits += self._b.race.record(candidate.id, candidate.timing.samples)
        out = {exit.id for exit in exits}
        self._b.put_out(exits, still_in=[c for c in candidates if c.id not in out])
        self._tell([c.trial for c in candidates if c.trial is not None])

    def _settle_host_bound(self) -> None:
        """What was timed one launch at a time gets another chance to be timed like the rest, and
        where there is no rest, races by itself."""
        held, self._host_bound = self._host_bound, []
        if not held:
            return
        if all(c.known_timing is None or _is_host_bound(c) for c in self._b.candidates.values()):
            self._b.host_bound = True
            self._b.recorder.note(
                "every config was timed one launch at a time, since the host was too slow to fill "
                "the queue; they compare with each other, but their times are longer than those "
                "of clean timings"
            )
            self._enter_race(held)
            return
        for candidate in held:
            if self._b.seconds_left > 0:
                self._look_at([candidate])
        self._tell(
            self._b.recorder.measured_all(
                [(c, Status.OUTRACED, HOST_BOUND) for c in held if _is_host_bound(c)]
            )
        )

    def _recheck_the_best(self) -> None:
        """The race may want the best sampled again, to know whether the device changed pace."""
        if self._b.target.shares_host and self._b.builder.pending:
            return
        for request in self._b.race.plan(more=True):
            self._b.sample(self._b.candidates[request.id], request.samples)

    def _fail(self, failures: Sequence[tuple[Candidate, ConfigFailure]]) -> None:
        if failures:
            self._tell(self._b.recorder.failed_all(failures))

    def _tell(self, trials: Sequence[Trial]) -> None:
        if trials:
            with self._b.ledger.phase("search"), no_forks():
                self._strategy.tell(trials)


def _is_host_bound(candidate: Candidate) -> bool:
    timing = candidate.known_timing
    failed = candidate.trial is not None and candidate.trial.status.failed
    return timing is not None and timing.host_bound and not failed

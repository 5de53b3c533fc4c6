"""The first half of a tuning: ask, build, take a first look, tell."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Hashable, Sequence

from whet.core.config import Config
from whet.core.errors import ConfigFailure, HostFailure
from whet.core.run import Stop
from whet.core.status import Status
from whet.core.trial import Trial
from whet.engine.steps.record import Candidate
from whet.engine.steps.samples import HOPELESS, HOST_BOUND, OutOfTime, Sampler
from whet.measure.bench.bits import ReferenceBench
from whet.measure.bench.protocol import ParallelBench
from whet.measure.racing.race import Exit
from whet.search import Sparing, Strategy

# Builds per core in one batch, where building must pause for measuring. It starts small, so that
# there is a best soon, and doubles, so that every core is busy to the end of most batches.
FIRST_BATCH, LARGEST_BATCH = 2, 12

# Short kernels are looked at together, as many as fit into this: a message to the measuring process
# costs more than looking at a kernel of a microsecond does.
MOMENT_S = 0.03


class Exploration:
    """Gives every config the strategy asks for a build and a first look, within the budget.

    `suspects` (ids) may end this process: they come after all others, one at a time. `wanted` are
    looked at whatever the strategy asks for.
    """

    def __init__(
        self,
        sampler: Sampler,
        strategy: Strategy,
        known: Collection[str] = (),
        suspects: Container[str] = (),
        wanted: Sequence[Config] = (),
    ) -> None:
        self._sampler = sampler
        self._strategy = strategy
        self._known = known
        self._suspects = suspects
        self._wanted = wanted
        self._held: list[Candidate] = []
        # In the order they were asked for, whichever build ends first.
        self._built: list[tuple[int, Candidate]] = []
        self._batch = FIRST_BATCH
        self._measured_as: dict[Hashable, Candidate] = {}
        self._host_bound: list[Candidate] = []
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
            if self._enough:
                self._leave_the_rest()
                break
            self._top_up()
            self._sampler.builds.put_in_order(last=self._exhausted)
            try:
                self._collect(block=not self._may_measure)
            except HostFailure:
                self._look_at_the_rest()
                raise
            if self._sampler.exploring_s <= 0:
                self._cut_short = Stop.TIME
                self._sampler.builds.builder.cancel_all()
                break
            if self._sampler.guard.watch.gave_up:
                self._cut_short = Stop.BUILDS
                break
            if self._may_measure:
                candidates = self._distinct(self._next())
                if candidates:
                    self._look_at(candidates)
                self._recheck_the_best()
                if self._sampler.plan.fixed_samples is None:
                    self._sampler.builds.cut(lambda id: self._sampler.race.verdict(id) == "in")
            elif not self._sampler.builds.builder.pending and (self._exhausted or self._room == 0):
                if not self._held:
                    break
                self._built = [(0, self._held.pop(0))]
        self._settle_host_bound()

    @property
    def _enough(self) -> bool:
        """Never before those that are looked at in any case have their outcomes."""
        if not isinstance(self._strategy, Sparing) or not self._settled_must:
            return False
        with self._sampler.guard.searching():
            return self._strategy.enough

    @property
    def _settled_must(self) -> bool:
        return all(map(self._has_outcome, self._must))

    @property
    def _must(self) -> list[Config]:
        first = self._sampler.target.space.first
        return [*self._wanted] if first is None else [first, *self._wanted]

    def _has_outcome(self, config: Config) -> bool:
        candidate = self._sampler.candidates.get(config.id)
        return config.id in self._known or (candidate is not None and candidate.trial is not None)

    def _is_known(self, config: Config) -> bool:
        return config.id in self._known or config.id in self._sampler.candidates

    def _leave_the_rest(self) -> None:
        """Builds under way are given up; what is built is looked at."""
        self._cut_short = Stop.EFFORT
        self._sampler.builds.builder.cancel_all()
        self._collect(block=False)
        self._look_at_the_rest()
        done = {id for id, one in self._sampler.candidates.items() if one.trial is not None}
        tried, size = len(done.union(self._known)), self._sampler.target.space.count
        left = "the rest" if size is None else f"{size - tried:,} of {size:,} configs"
        if size == tried:
            return
        self._sampler.recorder.note(
            f"left out {left}: not expected to be worth their builds; effort=full tries them"
        )

    @property
    def _may_measure(self) -> bool:
        # Where builds and runs share the cores, a build next door would be part of the timing.
        quiet = not self._sampler.target.shares_host or not self._sampler.builds.builder.pending
        return bool(self._built) and quiet and not self._waits_for_reference

    @property
    def _reference(self) -> Config | None:
        """The next to be tried as what all are compared with: the first that runs, in the author's
        order, since whose build ends first is a matter of luck."""
        bench = self._sampler.bench
        if not isinstance(bench, ReferenceBench) or bench.has_reference:
            return None
        for config in self._sampler.target.space:
            if config.id not in self._suspects and not self._has_outcome(config):
                return config
        return None

    @property
    def _waits_for_reference(self) -> bool:
        reference = self._reference
        candidate = reference and self._sampler.candidates.get(reference.id)
        return candidate is not None and not candidate.ready

    @property
    def _room(self) -> int:
        """How many more configs the budget allows."""
        trials = self._sampler.budget.trials
        return 1 << 30 if trials is None else max(0, trials - self._asked)

    def _top_up(self) -> None:
        reference = self._reference
        if reference and reference.id not in self._sampler.candidates and self._room > 0:
            self._start_all([reference])
        waiting = self._sampler.builds.builder.pending + len(self._built)
        # A strategy that learns is asked for no more at once than keeps the cores busy.
        guided = self._strategy.guided
        if self._sampler.target.shares_host:
            wanted = (1 if guided else self._batch) * self._sampler.jobs if waiting == 0 else 0
        else:
            wanted = (1 if guided else 4) * self._sampler.jobs - waiting
        wanted = min(wanted, self._room)
        if wanted <= 0 or self._exhausted:
            return
        # Whatever the strategy thinks of the author's own: people have that, and compare with it.
        authors = [] if self._asked else [one for one in self._must if not self._is_known(one)]
        more = max(0, wanted - len(authors))
        if self._wanted and isinstance(self._strategy, Sparing) and not self._settled_must:
            more = 0  # what these are like says which others are worth a build
        with self._sampler.guard.searching():
            configs = self._strategy.ask(more) if more else []
        # One that spares builds may want to hear first what comes of those under way.
        waits = isinstance(self._strategy, Sparing) and waiting > 0
        self._exhausted = not configs and more > 0 and not waits
        self._batch = min(2 * self._batch, LARGEST_BATCH)
        new = [config for config in configs if config.id not in self._sampler.candidates]
        self._start_all([*{config.id: config for config in (*authors, *new)}.values()])

    def _start_all(self, configs: Sequence[Config]) -> None:
        self._fail([found for config in configs if (found := self._start(config))])

    def _start(self, config: Config) -> tuple[Candidate, ConfigFailure] | None:
        candidate = Candidate(config, order=len(self._sampler.candidates))
        self._sampler.candidates[config.id] = candidate
        self._asked += 1
        reason = self._sampler.target.reject(config)
        if reason is not None:
            return candidate, ConfigFailure(Status.CONSTRAINT, reason)
        self._sampler.builds.submit(candidate)
        if candidate.ready:
            self._push(candidate)
        return None

    def _collect(self, *, block: bool) -> None:
        if not self._sampler.builds.builder.pending:
            return
        timeout = max(0.0, min(3600.0, self._sampler.exploring_s)) if block else 0.0
        failed: list[tuple[Candidate, ConfigFailure]] = []
        for done in self._sampler.builds.collect(timeout):
            if isinstance(done, Candidate):
                self._push(done)
            else:
                failed.append(done)
        self._fail(failed)

    def _look_at_the_rest(self) -> None:
        """Nothing more can be built; the best may be among what is."""
        self._sampler.builds.builder.cancel_all()
        while self._built and self._sampler.exploring_s > 0:
            candidates = self._distinct(self._next())
            if candidates:
                self._look_at(candidates)

    def _push(self, candidate: Candidate) -> None:
        if candidate.id in self._suspects:
            self._held.append(candidate)
            return
        heapq.heappush(self._built, (candidate.order, candidate))

    def _next(self) -> list[Candidate]:
        """The next to look at: one, or of very short kernels as many as a moment allows."""
        reference = self._reference
        if reference and (one := self._sampler.candidates.get(reference.id)) and one.ready:
            self._built = [other for other in self._built if other[1] is not one]
            heapq.heapify(self._built)
            return [one]
        quickest = self._sampler.quickest_look_s
        many = 1 if quickest is None else int(MOMENT_S / quickest)
        slow_to_begin = self._sampler.longest_first_call_s > MOMENT_S
        if (
            slow_to_begin or self._sampler.seconds_left < 10.0
        ):  # then every look is watched by the clock
            many = 1
        if isinstance(self._sampler.bench, ParallelBench):
            many = max(many, self._sampler.bench.width)
        return [heapq.heappop(self._built)[1] for _ in range(min(max(1, many), len(self._built)))]

    def _distinct(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """One of each binary that has not been measured; its twins wait for what comes of it."""
        chosen: list[Candidate] = []
        seen: set[Hashable] = set()
        for candidate in candidates:
            same = self._sampler.target.twin(candidate.config, candidate.facts)
            if same in seen:
                self._push(candidate)
            elif not self._is_twin(candidate, same):
                chosen.append(candidate)
                seen.update(() if same is None else (same,))
        return chosen

    def _is_twin(self, candidate: Candidate, same: Hashable | None) -> bool:
        """The same binary again: what was measured of its twin holds for it."""
        twin = None if same is None else self._measured_as.get(same)
        if twin is None or twin.timing is None:
            return False
        candidate.timing, candidate.facts = twin.timing, twin.facts
        reason = f"the same binary as [{twin.config}]"
        self._tell([self._sampler.recorder.measured(candidate, Status.OUTRACED, reason)])
        return True

    def _look_at(self, candidates: Sequence[Candidate]) -> None:
        try:
            failures = self._sampler.look(candidates)
        except OutOfTime:
            self._cut_short = Stop.TIME
            return
        self._fail([(c, failures[c.id]) for c in candidates if c.id in failures])
        self._measured([c for c in candidates if c.id not in failures])

    def _measured(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            assert candidate.timing is not None
            same = self._sampler.target.twin(candidate.config, candidate.facts)
            if same is not None:
                self._measured_as.setdefault(same, candidate)
            self._sampler.builds.measured(candidate)
        held = [candidate for candidate in candidates if _is_host_bound(candidate)]
        self._host_bound += held
        self._sampler.put_out((), still_in=held)
        self._enter_race([c for c in candidates if not _is_host_bound(c)])

    def _enter_race(self, candidates: Sequence[Candidate]) -> None:
        exits: list[Exit] = []
        for candidate in candidates:
            if candidate.hopeless:
                exits.append(Exit(candidate.id, HOPELESS))
            elif self._sampler.plan.fixed_samples is None and candidate.timing is not None:
                exits += self._sampler.race.enter(candidate.id, candidate.order)
                exits += self._sampler.race.record(candidate.id, candidate.timing.samples)
        out = {exit.id for exit in exits}
        self._sampler.put_out(exits, still_in=[c for c in candidates if c.id not in out])
        self._tell([c.trial for c in candidates if c.trial is not None])

    def _settle_host_bound(self) -> None:
        """What was timed one launch at a time gets another chance to be timed like the rest, and
        where there is no rest, races by itself."""
        held, self._host_bound = self._host_bound, []
        if not held:
            return
        if all(
            c.known_timing is None or _is_host_bound(c) for c in self._sampler.candidates.values()
        ):
            self._sampler.host_bound = True
            self._sampler.recorder.note(
                "every config was timed one launch at a time, because the host was too slow to "
                "fill the queue; the times can be compared with each other, but are longer "
                "than regular timings"
            )
            self._enter_race(held)
            return
        for candidate in held:
            if self._sampler.seconds_left > 0:
                self._look_at([candidate])
        self._tell(
            self._sampler.recorder.measured_all(
                [(c, Status.OUTRACED, HOST_BOUND) for c in held if _is_host_bound(c)]
            )
        )

    def _recheck_the_best(self) -> None:
        """The race may want the best sampled again, to know whether the device changed pace."""
        if self._sampler.target.shares_host and self._sampler.builds.builder.pending:
            return
        for request in self._sampler.race.plan(more=True):
            self._sampler.sample(self._sampler.candidates[request.id], request.samples)

    def _fail(self, failures: Sequence[tuple[Candidate, ConfigFailure]]) -> None:
        if failures:
            self._tell(self._sampler.recorder.failed_all(failures))

    def _tell(self, trials: Sequence[Trial]) -> None:
        if trials:
            with self._sampler.guard.searching():
                self._strategy.tell(trials)


def _is_host_bound(candidate: Candidate) -> bool:
    timing = candidate.known_timing
    failed = candidate.trial is not None and candidate.trial.status.failed
    return timing is not None and timing.host_bound and not failed

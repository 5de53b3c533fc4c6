"""Refinement in the shadow of calls: a few candidates against the config in use, a step at a time.

refinement = whet.refine(target)
while serving:
    run(refinement.choice.config)
    refinement.after_call()
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from whet._version import __version__
from whet.builds.builder import Builder
from whet.builds.job import BuildResult
from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import ConfigFailure, StoreError, TuningFailedError, UsageError
from whet.core.frozen import FrozenMap
from whet.core.process import memory_info
from whet.core.run import Choice, Outcome, Run
from whet.core.status import Limit, Status
from whet.core.timing import Timing, median
from whet.core.trial import Cost, Trial
from whet.core.workload import Workload
from whet.engine.crash_report import noticed
from whet.engine.fallback.inheritance import inheritance_candidates
from whet.engine.fallback.mode import mode_for
from whet.engine.fallback.untuned import choose
from whet.engine.guard import LaunchJournalOutside
from whet.engine.log import log_event, logger
from whet.engine.settings import Settings, resolve_settings
from whet.engine.steps.record import Candidate
from whet.engine.target import BenchLimits, Target, bit_check_of
from whet.measure import Hopeless
from whet.measure.bench.protocol import Bench, Sampled, Visit
from whet.measure.racing.duel import Duel, DuelOutcome, DuelPolicy
from whet.measure.racing.race import RacePolicy
from whet.measure.racing.stats import percent_text
from whet.store import MemoryStore, Store, open_store

# Time without calls is not calls' time: a gap between two counts for no more than this.
LONGEST_GAP_S = 1.0

# What counting one call costs, which nobody could time without spending more, and after how many
# calls it can be said that they come too quickly even for that.
CALL_S = 2.5e-7
ENOUGH_CALLS = 10_000

# The clock is looked at about this often, and at the latest after so many calls.
LOOK_EVERY_S = 1e-2
MOST_UNSEEN_CALLS = 1000


class TimeBudget:
    """`spent_s` stays below `share` of `elapsed_s`, as long as whoever spends asks `covers` first
    for no less than it will take; what it took beyond that is paid off before `covers` says yes
    again. One allowance may be shared by many that spend, and has room for one at a time. Where a
    call of `counts_call` would cost too much, `unseen` and `look_after` are what it looks at.
    """

    def __init__(self, share: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.share = share
        self.spent_s = 0.0
        self.elapsed_s = 0.0
        self.calls = 0
        self.clock = clock
        self._last = clock()
        self.unseen = 0
        self.look_after = 1
        self._inside = threading.Lock()

    def counts_call(self) -> bool:
        """Counts a call; True where it is time to look whether something can be afforded."""
        self.unseen += 1
        return self.unseen >= self.look_after

    def covers(self, seconds: float) -> bool:
        return self.spent_s + seconds <= self.share * self.elapsed_s

    @property
    def too_little(self) -> bool:
        """Whether counting calls takes all there is."""
        return self.calls >= ENOUGH_CALLS and CALL_S * self.calls > self.share * self.elapsed_s

    @property
    def pace_s(self) -> float:
        """From one call to the next."""
        return self.elapsed_s / max(1, self.calls)

    @contextmanager
    def spending(self) -> Iterator[bool]:
        """Books what happens in the block; False where another thread is in one."""
        if not self._inside.acquire(blocking=False):
            yield False
            return
        try:
            start = self._pass()
            try:
                yield True
            finally:
                end = self.clock()
                self.spent_s += end - start
                self.elapsed_s += end - start
                self._last = end
        finally:
            self._inside.release()

    def _pass(self) -> float:
        """Books the calls since the last time, and says how many may come before the next."""
        now, calls = self.clock(), self.unseen
        self.unseen = 0
        passed = min(now - self._last, LONGEST_GAP_S * max(1, calls))
        self.calls += calls
        self.elapsed_s += passed
        self.spent_s += CALL_S * calls
        pace = passed / max(1, calls)
        self.look_after = max(1, min(MOST_UNSEEN_CALLS, int(LOOK_EVERY_S / max(pace, 1e-9))))
        return now


RaceStep = Literal["open", "build", "poll", "look", "pair"]


@dataclass
class Entrant(Candidate):
    """`status` is None as long as it may win, or equals the winner."""

    status: Status | None = None
    reason: str = ""
    limit: Limit | None = None
    look_s: float = 0.0

    def out(self, status: Status, reason: str, limit: Limit | None = None) -> None:
        self.status, self.reason, self.limit = status, reason, limit

    def sampled(self, timing: Timing) -> None:
        """What was timed in another way before no longer counts."""
        alike = self.timing is not None and self.timing.comparable(timing)
        self.timing = self.timing.extended(timing) if self.timing and alike else timing


class IdleRace:
    """`steps` says what comes next before it is done, so that it can be paid for; it goes on when
    it is asked for the one after. Each is short: a build is started or asked for, a config loaded
    and run a few times, or one sample of two configs taken, back to back.

    At the end `champion` is `incumbent`, or what was shown to be faster; `equals` are those that
    could not be told from it. Raises `TuningFailedError` where the incumbent itself fails, and
    `DeviceLostError` where one of them has taken the device from this process.
    """

    def __init__(
        self,
        target: Target,
        incumbent: Config,
        rivals: Sequence[Config],
        store: Store,
        settings: Settings,
    ) -> None:
        self.incumbent = self.champion = Entrant(incumbent, 0)
        self.rivals = [Entrant(config, order) for order, config in enumerate(rivals, 1)]
        self.equals: list[Entrant] = []
        self._target = target
        self._store = store
        self._settings = settings
        self._builder: Builder | None = None
        self._stack = ExitStack()

    @property
    def entrants(self) -> list[Entrant]:
        return [self.incumbent, *self.rivals]

    def close(self) -> None:
        self._stack.close()

    def steps(self) -> Iterator[RaceStep]:
        yield "open"
        memory = self._settings.memory_bytes or memory_info("MemAvailable")
        limits = BenchLimits(memory, first_call_s=lambda: self._settings.first_call_s)
        bench = self._stack.enter_context(closing(self._target.bench(limits)))
        self._marking = LaunchJournalOutside(self._store, self._target.workload(), bench)
        self._marking.refuse_if_lost()
        yield from self._enter(bench, self.champion, None)
        if self.champion.status is not None:
            raise TuningFailedError(f"the current config fails: {self.champion.reason}")
        for rival in self.rivals:
            yield from self._enter(bench, rival, self.champion)
            if rival.status is None:
                duel = self._duel(self.champion, rival)
                yield from self._rounds(bench, duel, self.champion, rival)
                self._judge(duel, self.champion, rival)
            if rival.status is not None:
                bench.forget(rival.config)

    def _enter(self, bench: Bench, one: Entrant, best: Entrant | None) -> Iterator[RaceStep]:
        """Builds and loads it and takes a first sample; whoever cannot win is out."""
        yield "build"
        try:
            waits = self._start_build(one)
            while waits:
                yield "poll"
                waits = not self._has_built(one)
            yield "look"
            self._look(bench, one, best)
        except ConfigFailure as failure:
            one.out(failure.status, failure.message, failure.limit)

    def _start_build(self, one: Entrant) -> bool:
        refusal = self._target.reject(one.config)
        if refusal is not None:
            raise ConfigFailure(Status.CONSTRAINT, refusal)
        job = self._target.job(one.config)
        if job is None:
            return False
        limit = self._settings.build_limit_s
        if self._builder is None:
            self._builder = self._stack.enter_context(
                Builder(jobs=1, mode=self._target.build_mode, limit_s=limit)
            )
        self._builder.submit(one.config, job, limit_s=limit)
        return True

    def _has_built(self, one: Entrant) -> bool:
        assert self._builder is not None
        for result in self._builder.ready(0.0):
            if result.config == one.config:
                self._take(one, result)
                return True
        return False

    @staticmethod
    def _take(one: Entrant, result: BuildResult) -> None:
        one.cost += Cost.of(build=result.seconds)
        if result.status is not Status.OK:
            raise ConfigFailure(result.status, result.error, result.limit)
        one.artifact, one.facts = result.artifact, result.facts

    def _look(self, bench: Bench, one: Entrant, best: Entrant | None) -> None:
        policy, hopeless = RacePolicy(), None
        if best is not None and best.timing is not None:
            ns = best.timing.median_ns
            hopeless = Hopeless(ns, policy.hopeless_warm_up, policy.warm_up_slack_ns)
        start = time.perf_counter()
        # The config in use has run: its calls are what pays for this.
        with self._marking.around([one.config], first=one is not self.incumbent):
            built = (one.config, one.artifact)
            samples, limit_s = policy.first_samples, self._limit_s(best)
            [look] = bench.measure(Visit((built,), samples, True, limit_s, hopeless))
        if isinstance(look, ConfigFailure):
            raise look
        one.look_s = time.perf_counter() - start - look.seconds.get("first_call", 0.0)
        one.cost += Cost(look.seconds)
        one.facts = FrozenMap({**one.facts, **look.facts})
        one.timing = look.reading.timing()
        if best is not None and best.timing is not None and best.timing.comparable(one.timing):
            times = one.timing.median_ns / best.timing.median_ns
            if times > policy.hopeless:
                one.out(Status.OUTRACED, f"{times:.3g} times as slow in the first measurement")
        if look.hopeless:
            one.out(Status.OUTRACED, "its warm-up alone was too slow")

    def _limit_s(self, best: Entrant | None) -> float:
        """A config that needs many times what the one in use needs has lost already."""
        limit = self._settings.run_limit_s
        return limit if best is None else min(limit, 0.5 + 20 * best.look_s)

    def _duel(self, champion: Entrant, rival: Entrant) -> Duel:
        """Each of them may be wrong so rarely that all together hold what one would promise."""
        whole = DuelPolicy()
        confidence = 1 - (1 - whole.confidence) / len(self.rivals)
        policy = replace(whole, max_seconds=None, confidence=confidence)
        return Duel([champion.id, rival.id], policy, order={champion.id: 0, rival.id: 1})

    def _rounds(
        self, bench: Bench, duel: Duel, champion: Entrant, rival: Entrant
    ) -> Iterator[RaceStep]:
        by_id = {champion.id: champion, rival.id: rival}
        while (ids := duel.next_round()) is not None:
            yield "pair"
            pair = [by_id[id] for id in ids]
            with self._marking.around([one.config for one in pair], first=False):
                built = tuple((one.config, one.artifact) for one in pair)
                answers = bench.measure(Visit(built, 1, limit_s=self._limit_s(champion)))
            timings: dict[str, Timing] = {}
            for one, answer in zip(pair, answers, strict=True):
                if isinstance(answer, Sampled):
                    one.cost += Cost(answer.seconds)
                    timings[one.id] = answer.reading.timing()
                elif one is champion:
                    raise TuningFailedError(str(answer))
                else:
                    rival.out(answer.status, answer.message, answer.limit)
            if rival.id not in timings:
                return
            alike = timings[champion.id].comparable(timings[rival.id])
            # Times taken in two ways are not compared; the round is over all the same.
            duel.record_round({id: median(t.samples) for id, t in timings.items()} if alike else {})
            for one in pair if alike else ():
                one.sampled(timings[one.id])

    def _judge(self, duel: Duel, champion: Entrant, rival: Entrant) -> None:
        """Only what was shown to be faster takes the place of what is in use."""
        if rival.status is not None:
            return
        outcome = duel.outcome
        if champion.id in outcome.beaten:
            self._lose(champion, rival, outcome)
            for one in self.equals:
                one.out(Status.OUTRACED, f"tied with [{champion.config}], which lost")
            self.champion, self.equals = rival, []
        elif rival.id in outcome.beaten:
            self._lose(rival, champion, outcome)
        else:
            self.equals.append(rival)

    @staticmethod
    def _lose(loser: Entrant, winner: Entrant, outcome: DuelOutcome) -> None:
        longer = percent_text(outcome.ratios[loser.id].mid - 1)
        loser.out(Status.OUTRACED, f"takes {longer} longer than [{winner.config}]")


CANDIDATES = 3

Step = Literal["plan", "write"] | RaceStep

# What a step is expected to take while none of its kind has been seen; later, so many times the
# longest of the last few. A kernel is not expected to take longer than a call of it does.
FIRST_S: dict[Step, float] = {
    "plan": 0.02,
    "open": 0.02,
    "build": 0.02,
    "poll": 0.001,
    "look": 0.2,
    "pair": 0.02,
    "write": 0.02,
}
MARGIN = 2.0
REMEMBERED = 4
LAUNCHES = 4


class NotNow(Exception):
    """Raised on the way into a step by what is around it: this is not the call for it."""


class Refinement:
    """Tunes one workload between calls. `choice` is the config to use now.

    `choice` changes at most once, at the end, and only to a config that was shown to be faster;
    measurements are stored then. `after_call` does at most one step (start a build, load a config,
    or take one sample of two configs), and only if the allowance covers it. The allowance limits
    the time of the calling thread; builds run on other cores, one at a time. A step that takes
    longer than expected is paid off before the next one. Errors are never raised: they end the
    refinement, and `failure` gives the reason.
    """

    def __init__(
        self,
        target: Target,
        store: Store,
        choice: Choice,
        candidates: Sequence[Config] | None = None,
        *,
        allowance: TimeBudget,
        settings: Settings | None = None,
    ) -> None:
        """Without `candidates`, those that may be inherited, then some of the space."""
        self.choice = choice
        self.allowance = allowance
        self.failure: str | None = None
        # By this one alone; the allowance has the sum of all that share it.
        self.spent_s = 0.0
        self.done = choice.source == "exact"
        self._target = target
        self._store = store
        self._candidates = candidates
        self._settings = settings or resolve_settings().settings
        self._stack = ExitStack()
        self._began = time.time()
        self._costs: dict[Step, deque[float]] = {}
        self._steps = self._work()
        self._next: Step = next(self._steps)

    def after_call(self, around: AbstractContextManager[object] | None = None) -> None:
        """Call this after each call. `around` is entered for a step, if there is one, and its cost
        counts.
        """
        if self.allowance.counts_call():
            self.step(around)

    def step(self, around: AbstractContextManager[object] | None = None) -> None:
        """Like `after_call`, for a call that the allowance has already counted."""
        if not self.done:
            with self.allowance.spending() as alone:
                if alone:
                    self.turn(around)

    def turn(self, around: AbstractContextManager[object] | None = None) -> None:
        """Like `after_call`, within the allowance's `spending`."""
        if self.done:
            return
        if self.allowance.covers(self.expected_s):
            self._advance(around or nullcontext())
        elif self.allowance.too_little:
            pace, share = 1e6 * self.allowance.pace_s, percent_text(self.allowance.share)
            self._give_up(f"calls come every {pace:.3g} µs, too often for {share} of that time")
            self._release()

    def at_end(self, call: Callable[[], object]) -> None:
        """Registers `call` to be called when the refinement is done, abandoned or closed."""
        self._stack.callback(call)

    def close(self) -> None:
        """Stops the refinement; nothing is written."""
        self.done = True
        self._steps.close()
        self._release()

    @property
    def expected_s(self) -> float:
        """The expected duration of the next step, in seconds."""
        seen = self._costs.get(self._next)
        if seen:
            return MARGIN * max(seen)
        return FIRST_S[self._next] + LAUNCHES * self.allowance.pace_s

    def _advance(self, around: AbstractContextManager[object]) -> None:
        kind, start = self._next, self.allowance.clock()
        try:
            with around:
                self._next = next(self._steps)
        except NotNow:
            return
        except StopIteration:
            self.done = True
        except Exception as error:
            self._give_up(str(error) or type(error).__name__)
        if self.done:
            self._release()
        took = self.allowance.clock() - start
        self.spent_s += took
        self._costs.setdefault(kind, deque(maxlen=REMEMBERED)).append(took)

    def _give_up(self, reason: str) -> None:
        self.done = True
        self.failure = reason
        logger.warning(f"tuning '{self._target.name}' between calls has stopped: {self.failure}")

    def _release(self) -> None:
        # What cannot be closed is nobody's business while calls go on.
        with suppress(Exception):
            self._stack.close()

    def _work(self) -> Generator[Step]:
        yield "plan"
        rivals = self._rivals()
        race = IdleRace(self._target, self.choice.config, rivals, self._store, self._settings)
        self._stack.callback(race.close)
        yield from race.steps()
        yield "write"
        self._settle(race)

    def _rivals(self) -> list[Config]:
        """What may be inherited, the author's first config, and for want of these any other; not
        what is known to fail, or ran when a process died: a tuning has the means to find out."""
        workload_id = self._target.workload().id
        left_out = {self.choice.config.id, *noticed(self._store, workload_id).suspects}
        wanted = self._candidates
        if wanted is None:
            space, rng = self._target.space, np.random.default_rng(self._settings.seed)
            enough = CANDIDATES + len(left_out)
            known = inheritance_candidates(self._target, self._store, enough)
            first = [] if space.first is None else [space.first]
            wanted = list(dict.fromkeys([*known, *first, *space.sample(rng, enough)]))
        rivals = [
            config
            for config in wanted
            if config.id not in left_out and not self._has_failed(workload_id, config)
        ]
        return rivals[:CANDIDATES]

    def _has_failed(self, workload_id: str, config: Config) -> bool:
        trial = self._store.latest(workload_id, config.id)
        return trial is not None and trial.status.failed

    def _settle(self, race: IdleRace) -> None:
        best, workload = race.champion.config, self._target.workload()
        reason = f"raced against {len(race.rivals)} others between calls"
        if race.incumbent.status is not None:
            reason += f"; [{race.incumbent.config}] {race.incumbent.reason}"
        self.choice = Choice(best, "exact", 1.0, reason)
        run, trials = self._outcome(race, workload)
        try:
            self._store.put_workload(workload)
            self._store.append(trials)
            self._store.save_run(run)
        except StoreError as error:
            logger.warning(f"results will not be saved: {error}")
        spent = self.spent_s
        log_event("tuned", workload, pick=best, source="idle", cost_s=spent, reason=reason)

    def _outcome(self, race: IdleRace, workload: Workload) -> tuple[Run, list[Trial]]:
        run = Run(
            workload=workload,
            space_id=self._target.space.id,
            space_size=self._target.space.count,
            search="idle",
            seed=self._settings.seed,
            # A tuning that may try more is not content with this.
            budget=Budget(trials=len(race.entrants)),
            outcome=Outcome.FINISHED,
            first=self._target.space.first,
            best=race.champion.config,
            equals=tuple(one.config for one in race.equals),
            trials=len(race.entrants),
            cost=Cost(
                sum((one.cost for one in race.entrants), Cost()).work,
                FrozenMap({"measure": self.spent_s}),
            ),
            started=self._began,
            wall_s=self.spent_s,
            whet=__version__,
        )
        return run, [_trial(one, run) for one in race.entrants]


def _trial(one: Entrant, run: Run) -> Trial:
    status = one.status or Status.OK
    return Trial(
        workload_id=run.workload.id,
        config=one.config,
        status=status,
        timing=None if status.failed else one.timing,
        cost=one.cost,
        facts=one.facts,
        error=one.reason,
        limit=one.limit,
        run_id=run.id,
        created=time.time(),
    )


def refine(
    target: Target,
    *,
    store: Store | str | Path | None = None,
    candidates: Sequence[Config] | None = None,
    allowance: TimeBudget | None = None,
    settings: Settings | None = None,
) -> Refinement:
    """Returns the config to use now, and refines it between later calls.

    Starts with what `choose` returns, and is done at once if that is a stored result for this
    workload, or if the mode does not allow measuring. The default `allowance` is the share of time
    in the settings (`idle_share`, 2 %).
    """
    settings = settings or resolve_settings().settings
    allowance = allowance or TimeBudget(settings.idle_share)
    mode = mode_for(target, settings=settings)
    if mode != "tune":
        where = settings.store if store is None else store
        choice = choose(target, store=where, mode=mode)
        refinement = Refinement(target, MemoryStore(), choice, allowance=allowance)
        refinement.close()
        return refinement
    if bit_check_of(target) is not None:
        raise UsageError(f"whet.refine does not compare bits; tune '{target.name}' with whet.tune")
    with ExitStack() as stack:
        if store is None or isinstance(store, str | Path):
            where = settings.store if store is None else store
            store = stack.enter_context(
                open_store(where, bundle=settings.bundle, wait_s=settings.store_wait_s)
            )
        choice = choose(target, store=store, mode="cached")
        refinement = Refinement(
            target, store, choice, candidates, allowance=allowance, settings=settings
        )
        if not refinement.done:
            refinement.at_end(stack.pop_all().close)
    return refinement

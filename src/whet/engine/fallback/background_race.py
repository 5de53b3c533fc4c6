"""The race between calls: the config in use against a few others, in steps that can wait."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Literal

from whet.builds.builder import Builder
from whet.builds.job import BuildResult
from whet.core.config import Config
from whet.core.errors import ConfigFailure, TuningFailedError
from whet.core.frozen import FrozenMap
from whet.core.process import memory_info
from whet.core.status import Limit, Status
from whet.core.timing import Timing, median
from whet.core.trial import Cost
from whet.engine.guard import LaunchJournalOutside
from whet.engine.settings import Settings
from whet.engine.steps.record import Candidate
from whet.engine.target import BenchLimits, Target
from whet.measure import Hopeless
from whet.measure.bench.protocol import Bench, Sampled, Visit
from whet.measure.racing.duel import Duel, DuelOutcome
from whet.measure.racing.policy import DuelPolicy, RacePolicy
from whet.measure.racing.stats import percent_text
from whet.store import Store

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
        self._marking = LaunchJournalOutside(
            self._store, self._target.workload(), lambda: bench.in_process
        )
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

"""Visits to the device: first samples, more samples, rounds; each is guarded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from whet.core.budget import Budget
from whet.core.errors import ConfigFailure
from whet.core.event import Measured, MeasureStarted
from whet.core.frozen import FrozenMap
from whet.core.status import Limit, Status
from whet.core.timing import median
from whet.core.trial import Cost
from whet.engine.guard import Guard
from whet.engine.plan import Plan
from whet.engine.steps.build import Builds
from whet.engine.steps.record import Candidate, Recorder
from whet.engine.target import Target
from whet.measure import Hopeless, Reading
from whet.measure.bench.bits import DifferentBits
from whet.measure.bench.protocol import Answer, Bench, Sampled, Visit
from whet.measure.racing.race import Exit, Race

HOST_BOUND = (
    "timed one launch at a time, because the host was too slow to fill the queue; cannot be "
    "compared with regular timings"
)

HOPELESS = "its warm-up alone was too slow, so it was not sampled"

# What a first look may take beyond so many times the quickest. Where others use the same machine or
# GPU, what is none of its doing may hold a config up for two seconds and more.
LOOK_SLACK_S = 5.0
LOOK_FACTOR = 50.0

# However little is left of the budget, what has begun gets this long, and the first config as much
# as the whole budget: without a single time there is no result.
LEAST_S = 0.5

# However long a kernel is: that the pick is faster than the first config is what people quote.
PAIRS_WITH_DEFAULT = 7

# Where the times of a config vary by more than this, a person is told. By more than the second, and
# twice as much of the budget is kept to compare few configs often: below, it is worth more to have
# looked at all of them.
NOISY = 0.08
VERY_NOISY = 0.25

# As many configs as a budget of time is thought to be enough for, where the space has more.
MANY = 256

# How often a reading of the other kind than the rest is taken before its config is out.
TRIES = 3


def least_finals_s(budget: Budget) -> float:
    """What is kept for the finals however short the kernels are."""
    return 0.0 if budget.seconds is None else min(5.0, 0.2 * budget.seconds)


class OutOfTime(Exception):
    """The budget ended in the middle of something; nothing is known about that config."""


class NotComparable(Exception):
    """The config can be timed only in another way than those it is to be compared with."""


@dataclass
class Sampler:
    """What the steps of one run share: what is sampled, on what, and the race that it feeds.

    `host_bound` says that everything in the race was timed one launch at a time, where the host
    is too slow for better; else nothing was.
    """

    target: Target
    builds: Builds
    bench: Bench
    race: Race
    plan: Plan
    recorder: Recorder
    guard: Guard
    run_limit_s: float
    first_call_limit_s: float
    jobs: int
    budget: Budget
    candidates: dict[str, Candidate]
    quickest_look_s: float | None = None
    longest_first_call_s: float = 0.0
    host_bound: bool = False
    looks: int = 0

    @property
    def seconds_left(self) -> float:
        if self.budget.seconds is None:
            return float("inf")
        return self.budget.seconds - self.guard.ledger.elapsed

    @property
    def half_left(self) -> float:
        """Half of the time that is left, which need not be kept where there is no end of it."""
        return 0.0 if self.budget.seconds is None else self.seconds_left / 2

    @property
    def finals_s(self) -> float:
        """Kept for the finals as soon as there are two to compare: what the pick's duel with the
        first config takes, and at most half of the budget."""
        seconds = self.budget.seconds
        if seconds is None or self.looks < 2:
            return 0.0
        first = self.target.space.first
        ids = [first.id if first else None, self.race.incumbent]
        known = [self.candidates[id].known_timing for id in ids if id in self.candidates]
        pair = [timing.median_ns / 1e9 for timing in known if timing is not None]
        # That it is hopeless takes fewer rounds to see.
        apart = bool(pair) and pair[0] > self.plan.race.hopeless * pair[-1]
        rounds = 2 if apart else PAIRS_WITH_DEFAULT
        least = least_finals_s(self.budget) * (2 if self.race.noise > VERY_NOISY else 1)
        return min(seconds / 2, max(least, rounds * sum(pair)))

    @property
    def exploring_s(self) -> float:
        """What is left for configs that were not looked at yet."""
        return self.seconds_left - self.finals_s

    @property
    def _spare_s(self) -> float | None:
        """A run that takes longer than this is not worth a second one at first sight: a quarter of
        what each config would have of the budget. The first has two if it can: without, nobody
        would know how much times vary."""
        if self.budget.seconds is None or self.plan.fixed_samples is not None:
            return None
        configs = [self.target.space.count or MANY, self.budget.trials or MANY, MANY]
        return self.budget.seconds / (4 * min(configs) if self.looks else 4)

    @property
    def first_samples(self) -> int:
        return self.plan.fixed_samples or self.plan.race.first_samples

    def standing(self) -> list[Candidate]:
        """Who may still win, the best placed first."""
        return [self.candidates[id] for id in self.race.live]

    @property
    def look_limit_s(self) -> float:
        """How long a first look may take after its config's first call: one that needs many times
        what a good one needs has lost already, so a hang costs seconds even under a generous
        limit."""
        limit = self.run_limit_s
        if self.quickest_look_s is not None:
            limit = min(limit, LOOK_SLACK_S + LOOK_FACTOR * self.quickest_look_s)
        return limit

    @property
    def _hopeless(self) -> Hopeless | None:
        best = None if self.plan.fixed_samples is not None else self.race.incumbent
        timing = None if best is None else self.candidates[best].known_timing
        if timing is None:
            return None
        policy = self.plan.race
        return Hopeless(timing.median_ns, policy.hopeless_warm_up, policy.warm_up_slack_ns)

    def look(self, candidates: Sequence[Candidate]) -> dict[str, ConfigFailure]:
        """Loads, checks and warms up and takes the first samples, of one config or of many short
        ones in one visit. Who fails is in the answer."""
        alone = candidates[0] if len(candidates) == 1 else None
        limit = allowed = self.look_limit_s
        if alone is not None:
            self.recorder.emit(MeasureStarted(alone.config))
            least = LEAST_S if self.looks else max(LEAST_S, self.budget.seconds or 0.0)
            allowed = min(limit, max(least, self.seconds_left))
        built = tuple((candidate.config, candidate.artifact) for candidate in candidates)
        visit = Visit(built, self.first_samples, True, allowed, self._hopeless, self._spare_s)
        answers: tuple[Answer, ...] = ()
        start = time.perf_counter()
        with self._visit("look", candidates) as parts:
            try:
                answers = self.bench.measure(visit)
            except ConfigFailure as failure:  # which spoils this process
                answers = (failure,)
                raise
            finally:
                took = time.perf_counter() - start
                parts.update(_seconds(answers))
                if alone is not None and answers and isinstance(answers[0], ConfigFailure):
                    parts["first_call" if _in_first_call(answers[0]) else "measure"] = took
                    alone.cost += Cost(FrozenMap(parts))
        failures: dict[str, ConfigFailure] = {}
        for candidate, one in zip(candidates, answers, strict=True):
            if isinstance(one, Sampled):
                self._looked(candidate, one, Cost(one.seconds).work_s if alone is None else took)
            elif one.status is not Status.RUN_TIMEOUT:
                failures[candidate.id] = one
                if isinstance(one, DifferentBits):
                    candidate.facts = FrozenMap({**candidate.facts, **one.facts})
                    if alone is None:  # else it is booked above
                        candidate.cost += Cost(one.sampled.seconds)
            elif alone is not None and self._cut_by_budget(one, allowed < limit):
                raise OutOfTime
            else:
                failures[candidate.id] = self._cut(one, limit)
        return failures

    def _looked(self, candidate: Candidate, look: Sampled, took: float) -> None:
        first_call_s = look.seconds.get("first_call", 0.0)
        self.longest_first_call_s = max(self.longest_first_call_s, first_call_s)
        took = max(0.0, took - first_call_s)
        self.looks += 1
        self.quickest_look_s = min(took, self.quickest_look_s or took)
        candidate.cost += Cost(look.seconds)
        candidate.timing = look.reading.timing()
        candidate.hopeless = look.hopeless
        candidate.facts = FrozenMap({**candidate.facts, **look.facts})
        self._heed(look.reading)

    def expect_looks_like(self, stored: Cost) -> None:
        """A first look took no longer than all that was ever measured of a config, so that a hang
        is cut even where nothing has been looked at yet in this run."""
        took = sum(stored.work.get(phase, 0.0) for phase in ("load", "check", "warmup", "measure"))
        if took:
            self.quickest_look_s = min(took, self.quickest_look_s or took)

    def sample(self, candidate: Candidate, samples: int) -> bool:
        """Takes further samples, of a stored config after building and checking it again.

        False when it failed, cannot be compared or the time ran out; what it is out for is then
        written down.
        """
        try:
            if candidate.timing is None:
                if not self.builds.build_now(candidate, lambda: self.seconds_left):
                    return False
                new = self._look_anew(candidate)
            else:
                new = self._more(candidate, samples)
        except OutOfTime:
            return False
        except NotComparable:
            self._put_out_strangers([candidate])
            return False
        except ConfigFailure as failure:
            self.fail(candidate, failure)
            return False
        self.put_out(self.race.record(candidate.id, new))
        return True

    def round(self, rivals: Sequence[Candidate]) -> dict[str, float]:
        """One sample of each, in this order; who fails is out of the race and not in the answer.

        Where some are timed one launch at a time and others are not, the round is repeated; who
        then still is timed so is out.
        """
        for _ in range(TRIES):
            readings, failures = self._turn(rivals)
            bound = _host_bound(readings)
            if len(bound) in (0, len(readings)):
                break
        self._take_in(rivals, readings, failures)
        if len(bound) == len(readings):
            bound = set()
        self._put_out_strangers([rival for rival in rivals if rival.id in bound])
        return {id: median(one.samples) for id, one in readings.items() if id not in bound}

    def rounds(self, rounds: Sequence[Sequence[Candidate]]) -> list[dict[str, float]]:
        """The same for several rounds of the same candidates, in one visit. Where the host was too
        slow for any of it, each round has a visit of its own."""
        if len(rounds) > 1 and not self.host_bound:
            readings, failures = self._turn([rival for one in rounds for rival in one])
            clean = not _host_bound(readings)
            self._take_in(rounds[0], readings if clean else {}, failures)
            if clean:
                samples = {id: iter(reading.samples) for id, reading in readings.items()}
                return [
                    {rival.id: next(samples[rival.id]) for rival in one if rival.id in samples}
                    for one in rounds
                ]
        taken: list[dict[str, float]] = []
        gone: set[str] = set()
        for one in rounds:
            standing = [rival for rival in one if rival.id not in gone]
            taken.append(self.round(standing) if standing else {})
            gone.update(rival.id for rival in standing if rival.id not in taken[-1])
        return taken

    def side_by_side(self, rivals: Sequence[Candidate], rounds: int) -> dict[str, float]:
        """Medians of samples taken in turns, for information only; who fails is not in it."""
        readings, _ = self._turn([rival for _ in range(rounds) for rival in rivals])
        return {id: median(one.samples) for id, one in readings.items()}

    def _take_in(
        self,
        rivals: Sequence[Candidate],
        readings: Mapping[str, Reading],
        failures: Mapping[str, ConfigFailure],
    ) -> None:
        for rival in rivals:
            reading, failure = readings.get(rival.id), failures.get(rival.id)
            if failure is not None:
                self.fail(rival, failure)
            elif reading is not None and rival.timing is not None:
                self._heed(reading)
                later = reading.timing()
                if later.host_bound == rival.timing.host_bound:
                    rival.timing = rival.timing.extended(later)

    def _turn(
        self, rivals: Sequence[Candidate]
    ) -> tuple[dict[str, Reading], dict[str, ConfigFailure]]:
        """By id; who is named several times has as many samples."""
        built = tuple((rival.config, rival.artifact) for rival in rivals)
        by_id = {rival.id: rival for rival in rivals}
        with self._visit("round", rivals) as parts:
            answers = self.bench.measure(Visit(built, 1, limit_s=self.look_limit_s))
            parts.update(_seconds(answers))
        readings: dict[str, Reading] = {}
        failures: dict[str, ConfigFailure] = {}
        for (id, rival), one in zip(by_id.items(), answers, strict=True):
            if isinstance(one, Sampled):
                readings[id] = one.reading
                rival.cost += Cost(one.seconds)
            else:
                failures[id] = one
        return readings, failures

    def fail(self, candidate: Candidate, failure: ConfigFailure) -> None:
        """A config that was in the race broke down."""
        self.recorder.failed(candidate, failure)
        self.put_out(self.race.drop(candidate.id, failure.message))

    def put_out(self, exits: Sequence[Exit], still_in: Sequence[Candidate] = ()) -> None:
        """Writes down who has just lost the race, and lets go of what it holds; and who has just
        entered it and may win."""
        if not exits and not still_in:
            return
        losers = [(self.candidates[exit.id], Status.OUTRACED, exit.reason) for exit in exits]
        entered = [(candidate, Status.OK, "") for candidate in still_in]
        trials = self.recorder.measured_all([*entered, *losers])
        for trial in trials[: len(entered)]:
            self.recorder.consider_best(trial)
        for loser, _, _ in losers:
            self.bench.forget(loser.config)

    def _put_out_strangers(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            if len(self.race.live) > 1:
                others = self.race.drop(candidate.id, HOST_BOUND)
                self.put_out((*others, Exit(candidate.id, HOST_BOUND)))

    def _look_anew(self, candidate: Candidate) -> tuple[float, ...]:
        for _ in range(TRIES):
            for failure in self.look([candidate]).values():
                raise failure
            if candidate.timing is not None and candidate.timing.host_bound == self.host_bound:
                return candidate.timing.samples
        raise NotComparable

    def _more(self, candidate: Candidate, samples: int) -> tuple[float, ...]:
        assert candidate.timing is not None
        for _ in range(TRIES):
            with self._visit("sample", [candidate]) as parts:
                built = (candidate.config, candidate.artifact)
                [one] = self.bench.measure(Visit((built,), samples, limit_s=self.look_limit_s))
                if isinstance(one, ConfigFailure):
                    raise one
                parts.update(one.seconds)
            candidate.cost += Cost(one.seconds)
            self._heed(one.reading)
            timing = one.reading.timing()
            if timing.host_bound == candidate.timing.host_bound:
                candidate.timing = candidate.timing.extended(timing)
                return one.reading.samples
        raise NotComparable

    @contextmanager
    def _visit(self, kind: str, candidates: Sequence[Candidate]) -> Iterator[dict[str, float]]:
        """A visit to the bench, guarded, which is then reported."""
        configs = tuple({candidate.id: candidate.config for candidate in candidates}.values())
        limit_s = (self.look_limit_s + self.first_call_limit_s) * len(candidates)
        started, parts = time.monotonic(), dict[str, float]()
        try:
            with self.guard.visit(configs, limit_s, first=kind == "look") as parts:
                yield parts
        finally:
            self.recorder.emit(Measured(kind, configs, started, time.monotonic(), FrozenMap(parts)))

    def _heed(self, reading: Reading) -> None:
        for remark in reading.remarks:
            self.recorder.note(remark)

    def _cut_by_budget(self, failure: ConfigFailure, little_left: bool) -> bool:
        if _in_first_call(failure):
            return failure.limit is not None and failure.limit.value < self.first_call_limit_s
        return little_left

    def _cut(self, failure: ConfigFailure, limit: float) -> ConfigFailure:
        """The limit that was set is what a later run must raise, however early this one cut."""
        if limit >= self.run_limit_s or _in_first_call(failure):
            return failure
        text = (
            f"{failure.message}: after its first call a config may take {LOOK_SLACK_S:g} s "
            f"plus {LOOK_FACTOR:g} times what the quickest one took "
            f"({self.quickest_look_s or 0:.2g} s)"
        )
        return ConfigFailure(failure.status, text, Limit("run_s", limit, self.run_limit_s))


def _in_first_call(failure: ConfigFailure) -> bool:
    return failure.limit is not None and failure.limit.kind == "first_call_s"


def _host_bound(readings: Mapping[str, Reading]) -> set[str]:
    return {id for id, one in readings.items() if one.quality == "host_bound"}


def _seconds(answers: Sequence[Answer]) -> FrozenMap[float]:
    return sum((Cost(one.seconds) for one in answers if isinstance(one, Sampled)), Cost()).work

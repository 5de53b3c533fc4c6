"""The finals: a race, with more samples for every config that may still win until few enough are
left; then a duel of the last few, side by side, and of the winner with what would be used without
it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whet.core.event import DuelEnded, DuelStarted, RaceAdvanced
from whet.core.frozen import FrozenMap
from whet.core.run import Run
from whet.core.status import Status
from whet.core.timing import median
from whet.core.trial import Trial
from whet.engine.steps.record import Candidate, Recorder
from whet.engine.steps.samples import NOISY, PAIRS_WITH_DEFAULT, Sampler
from whet.measure.racing.duel import Duel, DuelOutcome, DuelPolicy
from whet.measure.racing.race import Exit, SampleRequest
from whet.measure.racing.stats import percent_text

# Configs sampled in one round trip; between two of these the budget is looked at.
BATCH = 32


def race(sampler: Sampler) -> tuple[list[Candidate], bool]:
    """Who is left, the best placed first, and whether the race came to its end.

    A stored config takes part with its stored samples. Only when these cannot decide is it built
    and measured again; from then on they are out of play, so that samples of two occasions are
    never mixed.
    """
    rounds, noise = 0, sampler.race.noise
    if noise > NOISY:
        sampler.recorder.note(
            f"times of the same config vary by {percent_text(math.expm1(noise))}, as if other work "
            "were running; fewer configs are compared, more often"
        )
    end = max(sampler.half_left, sampler.finals_s)  # the rest goes to the duel
    complete = not _cut_to(sampler, sampler.seconds_left - end)
    while requests := sampler.race.plan():
        if sampler.seconds_left <= end:
            complete = False
            break
        for some in _batched(requests, BATCH):
            if sampler.seconds_left > end:
                _take(sampler, some)
        rounds += 1
        sampler.recorder.emit(RaceAdvanced(rounds, left=len(sampler.race.live)))
    # More than can duel are left only when time ran out: then the best placed are.
    _keep(sampler, sampler.plan.race.finalists)
    return sampler.standing(), complete


def lowest_median(sampler: Sampler) -> Candidate | None:
    """Where everything had the same number of samples, there is no race."""
    timed = [c for c in sampler.candidates.values() if c.trial and c.trial.status is Status.OK]
    return min(timed, key=_median_then_order, default=None)


def _take(sampler: Sampler, requests: Sequence[SampleRequest]) -> None:
    """Single samples of configs at hand go in one round trip; the rest one by one."""
    wanted = [(sampler.candidates[request.id], request.samples) for request in requests]
    together = [c for c, samples in wanted if samples == 1 and c.timing is not None]
    taken = {candidate.id for candidate in together}
    times = sampler.round(together) if together else {}
    sampler.put_out([exit for id, ns in times.items() for exit in sampler.race.record(id, (ns,))])
    for candidate, samples in wanted:
        if candidate.id not in taken and sampler.race.verdict(candidate.id) == "in":
            sampler.sample(candidate, samples)


def _cut_to(sampler: Sampler, seconds: float) -> bool:
    """Leaves as many as two passes have the time for, if more: of few that are measured again more
    is known than of many that are not."""
    standing, policy = sampler.standing(), sampler.plan.race
    if len(standing) <= policy.finalists:
        return False
    spent, places = 0.0, 0
    for candidate in standing:
        timing = candidate.known_timing
        spent += policy.first_samples * (0.0 if timing is None else timing.median_ns / 1e9)
        places += spent <= seconds
    return _keep(sampler, max(places, policy.finalists))


def _keep(sampler: Sampler, places: int) -> bool:
    standing = sampler.standing()
    for place, candidate in enumerate(standing[places:], start=places + 1):
        reason = (
            f"place {place} of {len(standing)} when time ran out, which was enough for {places}"
        )
        sampler.put_out((*sampler.race.drop(candidate.id, reason), Exit(candidate.id, reason)))
    return len(standing) > places


def _batched(requests: Sequence[SampleRequest], size: int) -> Iterator[Sequence[SampleRequest]]:
    for start in range(0, len(requests), size):
        yield requests[start : start + size]


def _median_then_order(candidate: Candidate) -> tuple[float, int]:
    assert candidate.timing is not None
    return candidate.timing.median_ns, candidate.order


# Where there was no time to show that a config is faster than the default, it is taken if that is
# at least so likely. Less, and a default that everybody knows is left for what may be luck.
LIKELY = 0.75

# What is asked for where there was time; with so many rounds side by side it needs no more of them.
SURE, SURE_PAIRS = 0.975, 3

NO_TIME = "the budget ended before it could be compared side by side"

# How long the rounds of a duel may take that go in one round trip: between two of these the budget
# is looked at.
TRIP_NS = 20e6


@dataclass(frozen=True)
class Winner:
    """`equals` could not be told from it; `said` is how that was found out, in a sentence, and
    `lost` says by how much each beaten finalist was beaten. `speedup` is over the author's first
    config, measured side by side. It is `confirmed` unless the budget ended first."""

    candidate: Candidate
    equals: tuple[Candidate, ...] = ()
    said: str = ""
    lost: FrozenMap[str] = field(default_factory=FrozenMap)
    speedup: float | None = None
    confirmed: bool = True


class Duels:
    """Finds the winner among those that are left of the race.

    The author's first config, or what the run `before` chose, stays unless the winner is shown to
    be faster than it, or is likely to be where there was no time to show it.
    """

    def __init__(self, sampler: Sampler, before: Run | None = None) -> None:
        self._sampler = sampler
        self._chosen_before = None if before is None else before.best
        self._confirmed_before = before is not None and not before.provisional
        self._fought: list[Duel] = []

    def winner(self, finalists: list[Candidate]) -> Winner | None:
        """Of `finalists`, the best placed first."""
        if not finalists:
            return None
        if self._sampler.plan.duel is None or len(finalists) == 1:
            return self._against_default(Winner(finalists[0]))
        default = self._default
        rivals = self._affordable(finalists, default)
        others = [one for one in rivals if one is not default]
        if len(others) == 1:  # which is decided against the default
            winner: Winner | None = Winner(
                others[0], tuple(one for one in rivals if one is default)
            )
        else:
            winner = self._duel(rivals)
        if winner is None:
            return None
        left_out = {one.id for one in finalists} - {one.id for one in rivals}
        lost = FrozenMap({**winner.lost, **dict.fromkeys(left_out, NO_TIME)})
        confirmed = winner.confirmed and not left_out
        return self._against_default(replace(winner, lost=lost, confirmed=confirmed))

    def _affordable(self, finalists: list[Candidate], default: Candidate | None) -> list[Candidate]:
        """Those with time for the rounds after which anything can be told, and at least one that is
        not the default: few that were compared are worth more than many that were not."""
        assert self._sampler.plan.duel is not None
        time_s = self._sampler.seconds_left - self._kept_for(default, finalists[0])
        rounds = self._sampler.plan.duel.first_check
        rivals = list(finalists)
        for one in reversed(finalists):
            others = sum(rival is not default for rival in rivals)
            if others == 1 or rounds * _round_s(rivals) <= time_s:
                break
            if one is not default:
                rivals.remove(one)
        return rivals

    @property
    def _default(self) -> Candidate | None:
        """What would be used without this run: the author's first config; where that is not in the
        race, since it lost an earlier one, what that one chose."""
        first = self._sampler.target.space.first
        for config in (first, self._chosen_before):
            candidate = None if config is None else self._sampler.candidates.get(config.id)
            if candidate is not None and candidate.known_timing is not None:
                return candidate if _works(candidate) else None
        return None

    def _duel(self, standing: list[Candidate]) -> Winner | None:
        assert self._sampler.plan.duel is not None
        for candidate in standing:
            if candidate.timing is None:
                self._sampler.sample(candidate, self._sampler.first_samples)
        rivals = [one for one in standing if one.timing is not None and self._is_in(one)]
        if len(rivals) < 2:
            return Winner((rivals or standing)[0])
        ids = [rival.id for rival in rivals]
        duel = Duel(
            ids,
            self._sampler.plan.duel,
            prefer={rival.id: _preference(rival) for rival in rivals},
            earlier=self._sampler.race.passes(ids),
        )
        default = self._default
        self._fight(duel, rivals, self._kept_for(default, rivals[0]))
        outcome = duel.outcome
        if default is not None and default.id in outcome.beaten:
            outcome = duel.outcome_for(default.id)
        return self._verdict(outcome, rivals, duel.over)

    def _is_in(self, candidate: Candidate) -> bool:
        return self._sampler.race.verdict(candidate.id) == "in"

    def _kept_for(self, default: Candidate | None, best: Candidate) -> float:
        """Seconds that a duel leaves to the one with the default: that it is faster than what
        people have is what matters most of a winner."""
        if default is None or default.known_timing is None or best.known_timing is None:
            return 0.0
        pairs_s = 2 * PAIRS_WITH_DEFAULT * _round_s([default, best])
        return max(self._sampler.half_left, min(self._sampler.seconds_left, pairs_s))

    def _against_default(self, winner: Winner) -> Winner:
        """A winner that has not beaten the default yet meets it now. These are new samples: those
        so far have chosen the winner, and flatter it."""
        default, best, race = self._default, winner.candidate, self._sampler.race
        if default is None or default is best or default.id in winner.lost:
            return winner
        pair = [default, best]
        lost_before = default.timing is None and self._confirmed_before
        if lost_before and race.slower(default.id, than=best.id):
            return _without(default, winner)
        for one in pair:
            if one.timing is None:
                self._sampler.sample(one, self._sampler.first_samples)
        if not _works(default):
            return _without(default, winner)
        if default.timing is None or best.timing is None:
            return self._likelier(winner, default)
        policy = self._sampler.plan.duel or DuelPolicy()
        duel = Duel([default.id, best.id], policy.head_to_head(PAIRS_WITH_DEFAULT))
        self._fight(duel, pair, 0.0)
        outcome = duel.outcome_for(default.id)
        if outcome.decided or default.id in outcome.beaten or best.id in outcome.beaten:
            return self._decided(outcome, winner, default)
        likelier = self._likelier(winner, default, duel.over)
        if outcome.rounds:
            equals = tuple(one.config for one in likelier.equals)
            ended = DuelEnded(likelier.candidate.config, equals, outcome.rounds)
            self._sampler.recorder.emit(ended)
        return likelier

    def _decided(self, outcome: DuelOutcome, winner: Winner, default: Candidate) -> Winner:
        decided = self._verdict(outcome, [default, winner.candidate])
        if decided is None or decided.candidate is default:
            return _stays(winner, default, decided.said if decided else "")
        apart = _without(default, winner)
        said = decided.said if default in winner.equals else winner.said
        lost = FrozenMap({**winner.lost, **decided.lost})
        return replace(apart, said=said, lost=lost, speedup=decided.speedup)

    def _likelier(self, winner: Winner, default: Candidate, over: bool = False) -> Winner:
        """No duel has shown anything: the one that is expected to take less time, by the race and
        what there was of duels. Where they were not cut short more is asked for, since then there
        is little left to lose."""
        best = winner.candidate
        pairs = [pair for duel in self._fought for pair in duel.pairs(default.id, best.id)]
        found = self._sampler.race.estimate(default.id, best.id, pairs)
        a, b = f"[{best.config}]", f"[{default.config}]"
        if found is None or not _works(best):
            said = f"there was no time to compare {a} with {b}, which stays"
            return _stays(replace(winner, confirmed=False), default, said)
        sure = over or (len(pairs) >= SURE_PAIRS and found.chance >= SURE)
        winner = replace(winner, confirmed=winner.confirmed and sure)
        how = f"{min(99, int(100 * found.chance))} % likely to be faster than {b}"
        ended = "" if sure else "; the budget ended before it was shown"
        within = (self._sampler.plan.duel or DuelPolicy()).equal_within
        if found.chance < (SURE if over else LIKELY) or found.gain <= math.log1p(within):
            return _stays(winner, default, f"{a} is {how}, which stays{ended}")
        times = math.exp(found.gain)
        longer = f"{times:.2g} times as long" if times >= 2 else f"{percent_text(times - 1)} longer"
        is_first = default.config == self._sampler.target.space.first
        return replace(
            _without(default, winner),
            said=f"{a} is {how}, which takes about {longer}{ended}",
            speedup=median([one / other for one, other in pairs]) if pairs and is_first else None,
        )

    def _fight(self, duel: Duel, rivals: Sequence[Candidate], end: float) -> None:
        """Round after round, until `end` seconds of the budget are left."""
        by_id, at_once = {rival.id: rival for rival in rivals}, _at_once(rivals)
        self._fought.append(duel)
        if self._sampler.seconds_left > end:
            self._sampler.recorder.emit(DuelStarted(tuple(rival.config for rival in rivals)))
        while self._sampler.seconds_left > end and (turns := duel.next_rounds(at_once)):
            start = time.perf_counter()
            taken = self._sampler.rounds([[by_id[id] for id in turn] for turn in turns])
            seconds = (time.perf_counter() - start) / len(taken)
            gone = set(turns[-1]) - set(taken[-1])
            for id in gone:
                duel.drop(id)
            for times in taken:
                left = {id: ns for id, ns in times.items() if id not in gone}
                if left:
                    duel.record_round(left, seconds)

    def _verdict(
        self, outcome: DuelOutcome, rivals: Sequence[Candidate], over: bool = True
    ) -> Winner | None:
        if outcome.winner is None:
            return None
        by_id = {rival.id: rival for rival in rivals}
        winner, equals = by_id[outcome.winner], tuple(by_id[id] for id in outcome.equals)
        if outcome.rounds:
            self._sampler.recorder.emit(
                DuelEnded(winner.config, tuple(equal.config for equal in equals), outcome.rounds)
            )
        lost = {
            id: f"lost the duel: takes {100 * (outcome.ratios[id].mid - 1):.2g} % longer"
            for id in outcome.beaten
        }
        said = _said(outcome, rivals)
        speedup = self._speedup(outcome)
        return Winner(winner, equals, said, FrozenMap(lost), speedup, over or not equals)

    def _speedup(self, outcome: DuelOutcome) -> float | None:
        """Over the author's first config, where it took part."""
        first = self._sampler.target.space.first
        took_part = outcome.rounds and first is not None and first.id in outcome.ratios
        return outcome.ratios[first.id].mid if took_part and first else None


def _works(candidate: Candidate) -> bool:
    return candidate.trial is None or not candidate.trial.status.failed


def _without(default: Candidate, winner: Winner) -> Winner:
    return replace(winner, equals=tuple(one for one in winner.equals if one is not default))


def _stays(winner: Winner, default: Candidate, said: str) -> Winner:
    others = (one for one in (winner.candidate, *winner.equals) if one is not default)
    equals = tuple(one for one in others if _works(one))
    return Winner(default, equals, said, winner.lost, confirmed=winner.confirmed)


def _said(outcome: DuelOutcome, rivals: Sequence[Candidate]) -> str:
    return outcome.describe({rival.id: f"[{rival.config}]" for rival in rivals})


def _at_once(rivals: Sequence[Candidate]) -> int:
    """How many rounds of all of them fit into one trip."""
    return max(1, int(TRIP_NS / max(1.0, 1e9 * _round_s(rivals))))


def _round_s(rivals: Sequence[Candidate]) -> float:
    timings = [one.known_timing for one in rivals]
    return sum(timing.median_ns for timing in timings if timing is not None) / 1e9


def _preference(candidate: Candidate) -> tuple[Any, ...]:
    """Among equals: what needs less of the device, then what the author named first."""
    return (candidate.facts.get("registers", 0), candidate.order)


@dataclass(frozen=True)
class Contest:
    """`picks` are those that stores disagree on, the one in use first; none where they agree."""

    picks: tuple[Trial, ...]
    recorder: Recorder

    @property
    def undecided(self) -> bool:
        """True while a pick has not been measured or failed in this run."""
        tried = {trial.config.id for trial in self.recorder.trials}
        return any(trial.config.id not in tried for trial in self.picks)

    def announce(self) -> None:
        if self.picks:
            self.recorder.note(
                "merged stores disagree on the fastest config; measuring their picks again, "
                f"side by side: {self._names}"
            )

    def judged(self, winner: Winner | None) -> Winner | None:
        """Without the time for all contested picks, nobody has won against the one in use."""
        if not self.undecided:
            return winner
        self.recorder.note(
            f"{self._names} are the picks of different stores, and there was no time to "
            "measure them side by side; nothing was decided, so tune again with a larger budget"
        )
        return self.in_use()

    def in_use(self) -> Winner | None:
        """The pick to go on with, unless it has just failed."""
        failed = {trial.config.id for trial in self.recorder.trials if trial.status.failed}
        for trial in self.picks:
            if trial.config.id not in failed:
                return Winner(Candidate(trial.config, order=0, stored=trial))
        return None

    @property
    def _names(self) -> str:
        return ", ".join(f"[{trial.config}]" for trial in self.picks)

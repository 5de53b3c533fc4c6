"""The duel: the last few side by side, and the winner against what would be used without it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whet.core.config import Config
from whet.core.event import DuelEnded, DuelStarted
from whet.core.frozen import FrozenMap
from whet.engine.steps.record import Candidate
from whet.engine.steps.samples import Sampler
from whet.measure import Duel, DuelOutcome, DuelPolicy
from whet.measure.racing.stats import unpaired_ratio

# However long a kernel is: the speed-up over the first config is what people quote.
PAIRS_WITH_DEFAULT = 7

# How long the rounds of a duel may take that go in one round trip: between two of these the budget
# is looked at.
TRIP_NS = 20e6


@dataclass(frozen=True)
class Winner:
    """`equals` could not be told from it; `said` is how that was found out, in a sentence, and
    `lost` says by how much each beaten finalist was beaten. `speedup` is over the author's first
    config, measured side by side."""

    candidate: Candidate
    equals: tuple[Candidate, ...] = ()
    said: str = ""
    lost: FrozenMap[str] = field(default_factory=FrozenMap)
    speedup: float | None = None


class Duels:
    """Finds the winner among those that are left of the race.

    The author's first config, or what an earlier run chose (`chosen_before`), stays unless the
    winner is shown to be faster than it.
    """

    def __init__(self, sampler: Sampler, chosen_before: Config | None = None) -> None:
        self._sampler = sampler
        self._chosen_before = chosen_before

    def winner(self, finalists: list[Candidate]) -> Winner | None:
        if len(finalists) > 1 and self._sampler.plan.duel is not None:
            winner = self._duel(finalists)
        else:
            winner = Winner(finalists[0]) if finalists else None
        return None if winner is None else self._against_default(winner)

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
        rivals = [
            candidate for candidate in self._sampler.standing() if candidate.timing is not None
        ]
        if len(rivals) < 2:
            return Winner((rivals or standing)[0])
        ids = [rival.id for rival in rivals]
        duel = Duel(
            ids,
            self._sampler.plan.duel,
            prefer={rival.id: _preference(rival) for rival in rivals},
            earlier=self._sampler.race.passes(ids),
        )
        self._sampler.recorder.emit(DuelStarted(tuple(rival.config for rival in rivals)))
        default = self._default
        self._fight(duel, rivals, self._kept_for(default, rivals[0]))
        outcome = duel.outcome
        if default is not None and default.id in outcome.beaten:
            outcome = duel.outcome_for(default.id)
        return self._verdict(outcome, rivals)

    def _kept_for(self, default: Candidate | None, best: Candidate) -> float:
        """Seconds that a duel leaves to the one with the default: that it is faster than what
        people have is what matters most of a winner."""
        if default is None or default.known_timing is None or best.known_timing is None:
            return 0.0
        pair_s = (default.known_timing.median_ns + best.known_timing.median_ns) / 1e9
        return max(
            self._sampler.half_left,
            min(self._sampler.seconds_left, 2 * PAIRS_WITH_DEFAULT * pair_s),
        )

    def _against_default(self, winner: Winner) -> Winner:
        """A winner that has not beaten the default yet meets it now. These are new samples: those
        so far have chosen the winner, and flatter it."""
        default, best, race = self._default, winner.candidate, self._sampler.race
        if default is None or default is best or default.id in winner.lost:
            return winner
        pair = [default, best]
        for one in pair:
            if one.timing is None and not race.slower(default.id, than=best.id):
                self._sampler.sample(one, self._sampler.first_samples)
        if not _works(default):
            return _without(default, winner)
        if default.timing is None or best.timing is None:
            return self._by_the_race(winner, default)
        policy = self._sampler.plan.duel or DuelPolicy()
        duel = Duel([default.id, best.id], policy.head_to_head(PAIRS_WITH_DEFAULT))
        self._sampler.recorder.emit(DuelStarted((default.config, best.config)))
        self._fight(duel, pair, 0.0)
        outcome = duel.outcome_for(default.id)
        if outcome.winner == default.id and outcome.too_short:
            return self._by_the_race(winner, default)
        return self._decided(outcome, winner, default)

    def _decided(self, outcome: DuelOutcome, winner: Winner, default: Candidate) -> Winner:
        decided = self._verdict(outcome, [default, winner.candidate])
        if decided is None or decided.candidate is default:
            return _stays(winner, default, decided.said if decided else "")
        apart = _without(default, winner)
        said = decided.said if default in winner.equals else winner.said
        lost = FrozenMap({**winner.lost, **decided.lost})
        return replace(apart, said=said, lost=lost, speedup=decided.speedup)

    def _by_the_race(self, winner: Winner, default: Candidate) -> Winner:
        """There was no time for a duel that could show anything."""
        if self._seems_slower(default, winner.candidate):
            return _without(default, winner)
        best = winner.candidate.config
        said = f"not enough time to show that [{best}] is faster than [{default.config}]"
        return _stays(winner, default, f"{said}; keeping the latter")

    def _seems_slower(self, default: Candidate, best: Candidate) -> bool:
        """By all samples of both, wherever they come from: then a change of the device's pace may
        be part of the difference, and the best is the best of many."""
        if self._sampler.race.slower(default.id, than=best.id):
            return True
        if default.timing is None or best.timing is None:
            return False
        policy = self._sampler.plan.race
        measured = sum(one.timing is not None for one in self._sampler.candidates.values())
        ratio = unpaired_ratio(
            default.timing.samples,
            best.timing.samples,
            1 - (1 - policy.confidence) / max(1, measured - 1),
        )
        return ratio is not None and ratio.low > 1 + policy.visit_noise

    def _fight(self, duel: Duel, rivals: Sequence[Candidate], end: float) -> None:
        """Round after round, until `end` seconds of the budget are left."""
        by_id = {rival.id: rival for rival in rivals}
        while self._sampler.seconds_left > end and (turns := duel.next_rounds(_at_once(rivals))):
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

    def _verdict(self, outcome: DuelOutcome, rivals: Sequence[Candidate]) -> Winner | None:
        if outcome.winner is None:
            return None
        by_id = {rival.id: rival for rival in rivals}
        winner, equals = by_id[outcome.winner], tuple(by_id[id] for id in outcome.equals)
        self._sampler.recorder.emit(
            DuelEnded(winner.config, tuple(equal.config for equal in equals), outcome.rounds)
        )
        lost = {
            id: f"lost the duel: takes {100 * (outcome.ratios[id].mid - 1):.2g} % longer"
            for id in outcome.beaten
        }
        said = _said(outcome, rivals)
        return Winner(winner, equals, said, FrozenMap(lost), self._speedup(outcome))

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
    return Winner(default, equals, said, winner.lost)


def _said(outcome: DuelOutcome, rivals: Sequence[Candidate]) -> str:
    return outcome.describe({rival.id: f"[{rival.config}]" for rival in rivals})


def _at_once(rivals: Sequence[Candidate]) -> int:
    """How many rounds of all of them fit into one trip."""
    one_round = sum(rival.timing.median_ns for rival in rivals if rival.timing is not None)
    return max(1, int(TRIP_NS / max(1.0, one_round)))


def _preference(candidate: Candidate) -> tuple[Any, ...]:
    """Among equals: what needs less of the device, then what the author named first."""
    return (candidate.facts.get("registers", 0), candidate.order)

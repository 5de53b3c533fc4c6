"""The second half of a tuning: more samples for what may win, and a duel of the last few."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whet.core.event import DuelEnded, DuelStarted, RaceAdvanced
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import median
from whet.engine.recorder import Candidate
from whet.engine.workbench import Workbench
from whet.measure import Duel, DuelOutcome, Exit, Request

PAIRS_WITH_FIRST = 7

# Configs sampled in one round trip, and how long the rounds of a duel may take that go in one:
# between two of these the budget is looked at.
BATCH = 32
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


class Finals:
    """Finds the winner among the configs that are still in the race.

    A stored config takes part with its stored samples. Only when these cannot decide is it built
    and measured again; from then on they are out of play, so that samples of two occasions are
    never mixed.
    """

    def __init__(self, bench: Workbench) -> None:
        self._b = bench

    def run(self) -> Winner | None:
        if self._b.plan.fixed_samples is not None:
            return self._lowest_median()
        self._race()
        standing = self._finalists()
        if len(standing) > 1 and self._b.plan.duel is not None:
            winner = self._duel(standing)
        else:
            winner = Winner(standing[0]) if standing else None
        return None if winner is None else self._against_first(winner)

    def _lowest_median(self) -> Winner | None:
        timed = [c for c in self._b.candidates.values() if c.trial and c.trial.status is Status.OK]
        best = min(timed, key=_median_then_order, default=None)
        return None if best is None else Winner(best)

    def _finalists(self) -> list[Candidate]:
        """More than can duel are left only when time ran out: then the best placed are."""
        standing = self._standing()
        places = self._b.plan.race.finalists
        for place, candidate in enumerate(standing[places:], start=places + 1):
            reason = f"place {place} of {len(standing)} when time ran out; {places} could duel"
            self._b.put_out((*self._b.race.drop(candidate.id, reason), Exit(candidate.id, reason)))
        return self._standing()

    def _standing(self) -> list[Candidate]:
        return [self._b.candidates[id] for id in self._b.race.live]

    def _race(self) -> None:
        race, rounds = self._b.race, 0
        # Half of what is left of a time budget goes to the duel.
        end = self._b.seconds_left / 2 if self._b.budget.seconds is not None else 0.0
        while self._b.seconds_left > end and (requests := race.plan()):
            for some in _batched(requests, BATCH):
                if self._b.seconds_left > end:
                    self._take(some)
            rounds += 1
            self._b.recorder.emit(RaceAdvanced(rounds, left=len(race.live)))

    def _take(self, requests: Sequence[Request]) -> None:
        """Single samples of configs at hand go in one round trip; the rest one by one."""
        race = self._b.race
        wanted = [(self._b.candidates[request.id], request.samples) for request in requests]
        together = [c for c, samples in wanted if samples == 1 and c.timing is not None]
        taken = {candidate.id for candidate in together}
        times = self._b.round(together) if together else {}
        self._b.put_out([exit for id, ns in times.items() for exit in race.record(id, (ns,))])
        for candidate, samples in wanted:
            if candidate.id not in taken and race.verdict(candidate.id) == "in":
                self._b.sample(candidate, samples)

    def _against_first(self, winner: Winner) -> Winner:
        """The speed-up people will quote deserves better than two samples from another minute."""
        first = self._b.target.space.first
        author = None if first is None else self._b.candidates.get(first.id)
        best = winner.candidate
        if author is None or author is best or author.timing is None or best.timing is None:
            return winner
        ratios = []
        for turn in range(PAIRS_WITH_FIRST):
            if self._b.seconds_left <= 0:
                break
            pair = (best, author) if turn % 2 else (author, best)
            times = self._b.round(pair)
            if len(times) == 2:
                ratios.append(times[author.id] / times[best.id])
        return replace(winner, speedup=median(ratios)) if ratios else winner

    def _duel(self, standing: list[Candidate]) -> Winner | None:
        assert self._b.plan.duel is not None
        for candidate in standing:
            if candidate.timing is None:
                self._b.sample(candidate, self._b.plan.first_samples)
        rivals = [candidate for candidate in self._standing() if candidate.timing is not None]
        if len(rivals) < 2:
            return Winner((rivals or standing)[0])
        ids = [rival.id for rival in rivals]
        duel = Duel(
            ids,
            self._b.plan.duel,
            prefer={rival.id: _preference(rival) for rival in rivals},
            earlier=self._b.race.passes(ids),
        )
        by_id = {rival.id: rival for rival in rivals}
        self._b.recorder.emit(DuelStarted(tuple(rival.config for rival in rivals)))
        while self._b.seconds_left > 0 and (turns := duel.next_rounds(_at_once(rivals))):
            start = time.perf_counter()
            taken = self._b.rounds([[by_id[id] for id in turn] for turn in turns])
            seconds = (time.perf_counter() - start) / len(taken)
            gone = set(turns[-1]) - set(taken[-1])
            for id in gone:
                duel.drop(id)
            for times in taken:
                left = {id: ns for id, ns in times.items() if id not in gone}
                if left:
                    duel.record_round(left, seconds)
        return self._verdict(duel.outcome, by_id)

    def _verdict(self, outcome: DuelOutcome, by_id: dict[str, Candidate]) -> Winner | None:
        if outcome.winner is None:
            return None
        winner, equals = by_id[outcome.winner], tuple(by_id[id] for id in outcome.equals)
        self._b.recorder.emit(
            DuelEnded(winner.config, tuple(equal.config for equal in equals), outcome.rounds)
        )
        lost = {
            id: f"lost the duel: takes {100 * (outcome.ratios[id].mid - 1):.2g} % longer"
            for id in outcome.beaten
        }
        names = {id: f"[{candidate.config}]" for id, candidate in by_id.items()}
        return Winner(winner, equals, outcome.describe(names), FrozenMap(lost))


def _at_once(rivals: Sequence[Candidate]) -> int:
    """How many rounds of all of them fit into one trip."""
    one_round = sum(rival.timing.median_ns for rival in rivals if rival.timing is not None)
    return max(1, int(TRIP_NS / max(1.0, one_round)))


def _batched(requests: Sequence[Request], size: int) -> Iterator[Sequence[Request]]:
    for start in range(0, len(requests), size):
        yield requests[start : start + size]


def _median_then_order(candidate: Candidate) -> tuple[float, int]:
    assert candidate.timing is not None
    return candidate.timing.median_ns, candidate.order


def _preference(candidate: Candidate) -> tuple[Any, ...]:
    """Among equals: what needs less of the device, then what the author named first."""
    return (candidate.facts.get("registers", 0), candidate.order)

"""The race: many configs, few samples, and nobody out who could still win."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whet.measure.racing.estimate import Estimate, Looks, estimated
from whet.measure.racing.first_pass import FirstPass
from whet.measure.racing.policy import RacePolicy
from whet.measure.racing.rounds import Rounds, shared_passes
from whet.measure.racing.stats import low_median

Place = Literal["in", "out"]


@dataclass(frozen=True)
class SampleRequest:
    """Take `samples` more samples of `id`."""

    id: str
    samples: int


@dataclass(frozen=True)
class Exit:
    """`id` is out: `"12.3 µs ± 2 % cannot beat 9.8 µs ± 1 %"`."""

    id: str
    reason: str


@dataclass(frozen=True)
class RaceStanding:
    """`ns` is the location of all samples so far, None before the first; `reason` is why out."""

    id: str
    verdict: Place
    ns: float | None
    samples: int
    reason: str = ""


@dataclass
class _Entrant:
    order: int
    samples: list[float]
    reason: str = ""
    earlier_run: bool = False

    @property
    def ns(self) -> float | None:
        return low_median(self.samples) if self.samples else None


class Race:
    """A pure state machine over config ids: the same samples give the same verdicts.

    While configs arrive: `enter` and `record` each, and do what `plan(more=True)` asks for, which
    is seldom anything. When all have arrived: do what `plan()` asks for until it asks for nothing;
    those then in are the finalists. One that arrives later starts the rounds over.
    """

    def __init__(self, policy: RacePolicy | None = None) -> None:
        self.policy = policy or RacePolicy()
        self._entrants: dict[str, _Entrant] = {}
        self._live: dict[str, _Entrant] = {}
        self._looks = FirstPass(self.policy)
        self._rounds: Rounds | None = None

    def enter(self, id: str, order: int, prior: Sequence[float] = ()) -> tuple[Exit, ...]:
        """`order` is the author's. `prior` are samples of an earlier run: they stand for a first
        look, so that this config is sampled again only if somebody comes close to it."""
        if id in self._entrants:
            raise ValueError(f"config {id} is already in the race")
        entrant = _Entrant(order, list(prior), earlier_run=bool(prior))
        self._entrants[id] = self._live[id] = entrant
        self._rounds = None
        if prior:
            self._looks.add_prior(id, prior)
        return self._exits()

    def record(self, id: str, samples: Sequence[float]) -> tuple[Exit, ...]:
        """Takes in samples of `id`, and says who is out because of them."""
        if not samples:
            raise ValueError(f"no samples of config {id} to record")
        self._entrants[id].samples.extend(samples)
        if self._rounds is not None and self._rounds.waits_for(id):
            self._rounds.add(id, math.log(low_median(samples)))
        elif id in self._live:
            self._looks.add(id, samples)
        return self._exits()

    def drop(self, id: str, reason: str) -> tuple[Exit, ...]:
        """`id` failed. Says who else is out, now that nobody waits for it."""
        self._put_out(id, reason)
        return self._exits()

    def plan(self, more: bool = False) -> list[SampleRequest]:
        """What to sample next, in this order; nothing when the race is over, or, with `more`
        configs still to come, when no verdict is held up."""
        if self._rounds is None:
            wanted = self._looks.wanted(self.policy.anchor_every if more else 1)
            if wanted is not None:
                return [SampleRequest(*wanted)]
            if more or len(self._live) <= self.policy.finalists:
                return []
            self._rounds = Rounds(self.live, self.policy)
        return [SampleRequest(id, 1) for id in self._rounds.next_pass()]

    def verdict(self, id: str) -> Place:
        return "in" if id in self._live else "out"

    def slower(self, id: str, than: str) -> bool:
        """Whether all that is known of both, in or out, says so: their intervals do not meet."""
        pessimistic, optimistic = self._ends(than)[1], self._ends(id)[0]
        return optimistic > pessimistic

    def estimate(
        self, default: str, other: str, pairs: Sequence[tuple[float, float]] = ()
    ) -> Estimate | None:
        """How much faster `other` is, by its samples and the default's in this race, in or out, and
        by `pairs` of times that both took in turns since; None where one was never sampled."""
        policy, looks = self.policy, self._looks
        field = {
            id: Looks(
                [math.log(sample) for sample in one.samples],
                policy.rerun_noise if one.earlier_run else looks.visit_noise,
            )
            for id, one in self._entrants.items()
            if one.samples
        }
        return estimated(field, default, other, pairs, *looks.noise)

    @property
    def noise(self) -> float:
        """How much the times of a config vary, in a visit or between two, as far as was seen."""
        return max(self._looks.visit_noise, self._looks.noise[0])

    def _ends(self, id: str) -> tuple[float, float]:
        entrant = self._entrants.get(id)
        if entrant is None or entrant.ns is None:
            return -math.inf, math.inf
        half = self._looks.half_width(len(entrant.samples), earlier_run=entrant.earlier_run)
        return math.log(entrant.ns) - half, math.log(entrant.ns) + half

    def reason(self, id: str) -> str:
        """Why `id` is out; empty while it is in."""
        return self._entrants[id].reason

    @property
    def incumbent(self) -> str | None:
        """The one to beat."""
        if self._rounds is not None and self._rounds.rounds:
            return next(iter(self.live), None)
        return self._looks.incumbent

    def passes(self, ids: Sequence[str]) -> list[dict[str, float]]:
        """Nanoseconds of these in every pass that sampled them all, side by side."""
        return [] if self._rounds is None else shared_passes(self._rounds.passes, ids)

    @property
    def rounds(self) -> int:
        return 0 if self._rounds is None else self._rounds.rounds

    @property
    def live(self) -> tuple[str, ...]:
        """Who is in, best first."""
        ranked = sorted(self._live, key=lambda id: (self._centre(id), self._live[id].order))
        return tuple(ranked)

    def standing(self) -> list[RaceStanding]:
        """Those in, best first; then those out, fastest first."""
        out = [
            (entrant.ns or math.inf, entrant.order, id)
            for id, entrant in self._entrants.items()
            if id not in self._live
        ]
        return [self._standing(id) for id in (*self.live, *(id for *_, id in sorted(out)))]

    def _standing(self, id: str) -> RaceStanding:
        entrant = self._entrants[id]
        return RaceStanding(id, self.verdict(id), entrant.ns, len(entrant.samples), entrant.reason)

    def _centre(self, id: str) -> float:
        centre = None if self._rounds is None else self._rounds.centre(id)
        return self._looks.centre(id) if centre is None else centre

    def _put_out(self, id: str, reason: str) -> None:
        entrant = self._live.pop(id, None)
        if entrant is None:
            return
        entrant.reason = reason
        self._looks.remove(id)
        if self._rounds is not None:
            self._rounds.remove(id)

    def _exits(self) -> tuple[Exit, ...]:
        exits: list[Exit] = []
        legs = (self._looks,) if self._rounds is None else (self._looks, self._rounds)
        for leg in legs:
            exits.extend(Exit(id, reason) for id, reason in leg.out.items())
            leg.out.clear()
        for gone in exits:
            self._put_out(gone.id, gone.reason)
        return tuple(exits)

"""The duel: the last few, side by side, until one has won or they are called equal.

Why it is so: docs/decisions/picking.md.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from whet.core.frozen import FrozenMap
from whet.measure.racing.stats import Ratio, middle_mean, paired_ratio, percent_text

if TYPE_CHECKING:
    from whet.measure.racing.stats import Array


@dataclass(frozen=True)
class DuelPolicy:
    """A duel is checked after `first_check` rounds and then ever more rarely, up to `max_rounds`,
    or until `max_seconds` are over and it has had `min_rounds`.

    `confidence` holds for the duel as a whole: over all its checks and all its contestants.
    Two kernels are equal when their ratio is known to lie within ±`equal_within`.
    """

    first_check: int = 6
    growth: float = 1.35
    min_rounds: int = 1
    max_rounds: int = 30
    max_seconds: float | None = 10.0
    confidence: float = 0.95
    equal_within: float = 0.005

    def head_to_head(self, min_rounds: int) -> DuelPolicy:
        """For two of whom one must be shown to be faster, in up to four times the rounds. It is
        checked as soon as anything can be shown and seldom after that: every check makes the others
        stricter."""
        most = 4 * self.max_rounds
        return replace(self, min_rounds=min_rounds, first_check=10, growth=3.0, max_rounds=most)


@dataclass(frozen=True)
class DuelOutcome:
    """Who won, who is not worse, who is.

    `equals` are those the samples could not tell from the best (never the winner itself): shown
    equal where `decided`, merely not shown different where not. `ratios` are times relative to
    the winner's. `winner` is None when everyone failed. `default` is the one that others had to
    be shown faster than.
    """

    winner: str | None
    equals: tuple[str, ...]
    beaten: tuple[str, ...]
    rounds: int
    ratios: FrozenMap[Ratio]
    decided: bool
    equal_within: float
    default: str | None = None

    def describe(self, names: Mapping[str, str] | None = None) -> str:
        """One sentence; `names` says what to call each id.

        `"B=64 wins after 12 rounds: B=32 takes 3.1 % longer (2.2 % to 4 %)"` or
        `"no significant difference between B=64 and B=32 after 30 rounds (-0.5 % to 1.1 %)"`
        """
        said = {id: (names or {}).get(id, id) for id in (self.winner, *self.ratios) if id}
        if self.winner is None:
            return "every finalist failed"
        if self.equals:
            field = _listed([said[id] for id in (self.winner, *self.equals)])
            return (
                f"no significant difference between {field} after {self._rounds_text}"
                f"{self._known_of_equals}; {said[self.winner]} {self._why_it}"
            )
        if self.beaten:
            second = min(self.beaten, key=lambda id: self.ratios[id].mid)
            low, mid, high = (percent_text(end - 1) for end in self.ratios[second])
            return (
                f"{said[self.winner]} wins after {self._rounds_text}: "
                f"{said[second]} takes {mid} longer ({low} to {high})"
            )
        return f"{said[self.winner]} is the only one left"

    @property
    def _why_it(self) -> str:
        return "stays" if self.winner == self.default else "chosen"

    @property
    def _rounds_text(self) -> str:
        return "1 round" if self.rounds == 1 else f"{self.rounds} rounds"

    @property
    def _known_of_equals(self) -> str:
        ends = [self.ratios[id] for id in self.equals]
        low, high = min(r.low for r in ends), max(r.high for r in ends)
        if math.isinf(high):
            return ", too few to tell"
        shown = f": equal within {percent_text(self.equal_within)}" if self.decided else ""
        return f" ({percent_text(low - 1)} to {percent_text(high - 1)}){shown}"

    def __str__(self) -> str:
        return self.describe()


@dataclass
class _Contestant:
    id: str
    place: int
    times: dict[int, float] = field(default_factory=dict)
    # The confidence at which it was beaten.
    beaten: float | None = None


class Duel:
    """A pure state machine: take the round that `next_round` asks for, `record_round` it, repeat
    until it asks for none; then read `outcome`, which may be read at any time.

    `ids` come in the order they stand. Among those shown or presumed equal, whose estimates also
    lie within `equal_within` of the best, the smallest of `prefer` is chosen, then the first in
    the author's `order`, then the best placed. `earlier` are rounds of the race that led here: they
    prove nothing, since it was they who chose the contestants, but the estimates count them.
    """

    def __init__(
        self,
        ids: Sequence[str],
        policy: DuelPolicy | None = None,
        *,
        prefer: Mapping[str, tuple[Any, ...]] | None = None,
        order: Mapping[str, int] | None = None,
        earlier: Sequence[Mapping[str, float]] = (),
    ) -> None:
        self.policy = policy or DuelPolicy()
        self._all = {id: _Contestant(id, place) for place, id in enumerate(ids)}
        self._active = dict(self._all)
        self._prefer = prefer or {}
        self._order = order or {}
        self._earlier = earlier
        self._pairs = max(1, len(self._all) * (len(self._all) - 1) // 2)
        self._rounds = 0
        self._seconds = 0.0
        self._next_check = self.policy.first_check
        self._spent = 0.0
        self._confidence = self.policy.confidence
        self._over = len(self._active) < 2
        self._decided = self._over

    def next_round(self) -> list[str] | None:
        """Whom to sample once each, in this order, which turns so that drift evens out."""
        return next(iter(self.next_rounds(1)), None)

    def next_rounds(self, most: int) -> list[list[str]]:
        """The same for up to `most` rounds in a row, no further than to the next check."""
        if self._over:
            return []
        last = min(self._rounds + most, self._next_check, self.policy.max_rounds)
        return [self._ordered(number) for number in range(self._rounds, last)]

    def _ordered(self, number: int) -> list[str]:
        ids = list(self._active)
        shift = (number // 2) % len(ids)
        ids = ids[shift:] + ids[:shift]
        return ids[::-1] if number % 2 else ids

    def record_round(self, times: Mapping[str, float], seconds: float = 0.0) -> None:
        """Nanoseconds of each; one that is missing sits this round out."""
        for id, ns in times.items():
            self._all[id].times[self._rounds] = ns
        self._rounds += 1
        self._seconds += seconds
        limit = self.policy.max_seconds
        late = limit is not None and self._seconds >= limit
        exhausted = self._rounds >= self.policy.max_rounds or (
            late and self._rounds >= self.policy.min_rounds
        )
        if exhausted or self._rounds >= self._next_check:
            self._next_check = max(self._rounds + 1, round(self._rounds * self.policy.growth))
            self._check(last=exhausted)
            self._over = self._over or exhausted

    def drop(self, id: str) -> None:
        """`id` failed and takes no further part."""
        self._all.pop(id, None)
        self._active.pop(id, None)
        if len(self._active) < 2:
            self._over = self._decided = True

    @property
    def over(self) -> bool:
        """Whether it asks for no more rounds: it had the time it needs."""
        return self._over

    def pairs(self, one: str, other: str) -> list[tuple[float, float]]:
        """Nanoseconds of both in the rounds that both took part in."""
        if one not in self._all or other not in self._all:
            return []
        return self._paired(self._all[one], self._all[other])

    @property
    def outcome(self) -> DuelOutcome:
        return self.outcome_for(None)

    def outcome_for(self, default: str | None) -> DuelOutcome:
        """The outcome where `default`, one of the contestants, is in use already: it stays unless
        the interval of its ratio to another shows that one to be faster. Where the rounds are not
        over, they are judged as if the last had been taken."""
        if self._over:
            return self._outcome_for(default)
        ended = copy.deepcopy(self)
        ended._check(last=True)
        return ended._outcome_for(default)

    def _outcome_for(self, default: str | None) -> DuelOutcome:
        leader = self._leader()
        if leader is None:
            return DuelOutcome(
                None, (), (), self._rounds, FrozenMap(), False, self.policy.equal_within, default
            )
        winner = self._active.get(default or "") or self._chosen(leader, default)
        ratios = {id: self._ratio(c, winner) for id, c in self._all.items() if c is not winner}
        return DuelOutcome(
            winner=winner.id,
            equals=tuple(id for id in self._active if id != winner.id),
            beaten=tuple(id for id, c in self._all.items() if c.beaten is not None),
            rounds=self._rounds,
            ratios=FrozenMap(ratios),
            decided=self._decided,
            equal_within=self.policy.equal_within,
            default=default,
        )

    def _check(self, last: bool) -> None:
        """Each check spends its share of the error one is willing to make in the whole duel."""
        leader = self._leader()
        if leader is None:
            return
        share = 1.0 if last else min(1.0, self._rounds / self.policy.max_rounds)
        allowed = (1 - self.policy.confidence) * share - self._spent
        confidence = 1 - allowed / self._pairs
        verdicts = {
            other.id: self._pair(other, leader, confidence)
            for other in self._active.values()
            if other is not leader
        }
        if any(ratio is None for ratio in verdicts.values()):
            return
        self._spent += allowed
        self._confidence = confidence
        within = self.policy.equal_within
        all_equal = True
        for id, ratio in verdicts.items():
            assert ratio is not None
            equal = 1 - within <= ratio.low and ratio.high <= 1 + within
            if ratio.low > 1 and not equal:
                self._active.pop(id).beaten = confidence
            else:
                all_equal = all_equal and equal
        if all_equal:
            self._over = self._decided = True

    def _leader(self) -> _Contestant | None:
        """The best location over the rounds that all who are left took part in."""
        active = list(self._active.values())
        rounds = self._together(active)
        if not rounds:
            return active[0] if active else None
        return active[int(np.argmin(np.median(_levelled(rounds), axis=0)))]

    def _together(self, active: Sequence[_Contestant]) -> list[list[float]]:
        """The rounds that all of them took part in."""
        shared = [r for r in range(self._rounds) if all(r in c.times for c in active)]
        return [[c.times[r] for c in active] for r in shared]

    def _chosen(self, leader: _Contestant, default: str | None) -> _Contestant:
        active = self._faster_than(self._all.get(default or ""))
        rounds = [
            [times[c.id] for c in active]
            for times in self._earlier
            if all(c.id in times for c in active)
        ]
        rounds += self._together(active)
        if not rounds:
            return leader
        centres = middle_mean(_levelled(rounds))
        limit = centres.min() + math.log1p(self.policy.equal_within)
        tied = [c for c, centre in zip(active, centres, strict=True) if centre <= limit]

        def key(c: _Contestant) -> tuple[Any, ...]:
            preferred = self._prefer.get(c.id)
            order = self._order.get(c.id, len(self._all))
            return (preferred is None, preferred or (), order, c.place)

        return min(tied, key=key)

    def _faster_than(self, default: _Contestant | None) -> list[_Contestant]:
        """Who beat the default; everybody where nobody did alone, since the one that did has lost
        to others since."""
        active = list(self._active.values())
        if default is None or default.beaten is None:
            return active
        ratios = [self._pair(default, one, default.beaten) for one in active]
        shown = [c for c, r in zip(active, ratios, strict=True) if r is not None and r.low > 1]
        return shown or active

    def _ratio(self, one: _Contestant, other: _Contestant) -> Ratio:
        """Honest also where the rounds are too few for an interval: then it is unbounded."""
        confidence = self._confidence if one.beaten is None else one.beaten
        ratio = self._pair(one, other, confidence)
        if ratio is not None:
            return ratio
        logs = [math.log(a / b) for a, b in self._paired(one, other)]
        return Ratio(0.0, math.exp(float(np.median(logs))) if logs else 1.0, math.inf)

    def _pair(self, one: _Contestant, other: _Contestant, confidence: float) -> Ratio | None:
        pairs = self._paired(one, other)
        if not pairs:
            return None
        times, others = zip(*pairs, strict=True)
        return paired_ratio(times, others, confidence)

    @staticmethod
    def _paired(one: _Contestant, other: _Contestant) -> list[tuple[float, float]]:
        return [(ns, other.times[r]) for r, ns in one.times.items() if r in other.times]


def _levelled(rounds: Sequence[Sequence[float]]) -> Array:
    """Logs, relative to the level of each round: what slows the device down slows them all."""
    logs = np.log(np.array(rounds))
    return np.asarray(logs - np.median(logs, axis=1, keepdims=True))


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"

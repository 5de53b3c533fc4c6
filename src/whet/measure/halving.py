"""Successive halving: everybody a first look, the better half twice the samples, and so on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from whet.measure.policy import RacePolicy
from whet.measure.race import Exit, Race, Request, _Entrant
from whet.measure.rounds import shared_passes
from whet.measure.stats import low_median, time_text


class Halving(Race):
    """A race by places instead of intervals: how many samples it takes is known beforehand, and
    nobody's noise is estimated; in return, one unlucky look may put the best out.

    No verdict is given while configs arrive. When all have, the better half of the first looks
    takes turns, so many passes that its samples double; the better half of these goes on, and so
    down to `policy.finalists`. Within a pass everybody is sampled once, and only what was sampled
    in the same passes is compared, so that a change of the device's pace favours nobody. One that
    arrives later starts the halving over. The intervals of `policy` are not used.
    """

    def __init__(self, policy: RacePolicy | None = None) -> None:
        super().__init__(policy)
        self._looks_at: dict[str, list[float]] = {}
        self._passes: list[dict[str, float]] = []
        self._left: dict[str, None] = {}
        self._ends_at = 0
        self._rungs = 0
        self._losers: list[Exit] = []

    def enter(self, id: str, order: int, prior: Sequence[float] = ()) -> tuple[Exit, ...]:
        """`prior` are samples of an earlier run: they stand for a first look."""
        if id in self._entrants:
            raise ValueError(f"config {id} is already in the race")
        self._entrants[id] = self._live[id] = _Entrant(order, list(prior))
        self._looks_at[id] = [math.log(sample) for sample in prior]
        self._passes, self._left, self._rungs = [], {}, 0
        return self._exits()

    def record(self, id: str, samples: Sequence[float]) -> tuple[Exit, ...]:
        if not samples:
            raise ValueError(f"no samples of config {id} to record")
        self._entrants[id].samples.extend(samples)
        if id in self._left:
            self._passes[-1][id] = math.log(low_median(samples))
            del self._left[id]
            self._end_of_pass()
        elif not self._passes:
            self._looks_at[id] += [math.log(sample) for sample in samples]
        return self._exits()

    def plan(self, more: bool = False) -> list[Request]:
        if more:
            return []
        if not self._passes:
            unseen = [id for id in self._live if not self._looks_at[id]]
            if unseen:
                return [Request(id, self.policy.first_samples) for id in unseen]
            if len(self._live) <= self.policy.finalists:
                return []
            self._ends_at = max(1, self.policy.first_samples)
            self._halve("the first look")
            self._next_pass()
        return [Request(id, 1) for id in self._left]

    @property
    def incumbent(self) -> str | None:
        seen = [id for id, entrant in self._live.items() if entrant.samples]
        return min(seen, key=self._place, default=None)

    def passes(self, ids: Sequence[str]) -> list[dict[str, float]]:
        return shared_passes(self._passes, ids)

    @property
    def rounds(self) -> int:
        return self._rungs

    def _place(self, id: str) -> tuple[float, int]:
        return self._centre(id), self._live[id].order

    def _centre(self, id: str) -> float:
        """Over the finished passes relative to the field, before the first over the looks."""
        finished = self._passes[: len(self._passes) - bool(self._left)]
        if not finished:
            return low_median(self._looks_at[id]) if self._looks_at[id] else math.inf
        return low_median([one[id] - self._level(one) for one in finished if id in one])

    def _level(self, one_pass: dict[str, float]) -> float:
        """The device's pace in that pass, by those who are still in."""
        return low_median([log for id, log in one_pass.items() if id in self._live])

    def _next_pass(self) -> None:
        """Its order turns from pass to pass, so that a drift evens out."""
        ids = sorted(self._live, key=lambda id: self._live[id].order)
        self._left = dict.fromkeys(reversed(ids) if len(self._passes) % 2 else ids)
        self._passes.append({})

    def _end_of_pass(self) -> None:
        if self._left or not self._live:
            return
        if len(self._passes) >= self._ends_at:
            if len(self._live) <= self.policy.finalists or self._ends_at >= self.policy.max_samples:
                self._keep(self.policy.finalists, f"{len(self._passes)} passes")
                return
            self._halve(f"{len(self._passes)} passes")
            self._ends_at *= 2
            if len(self._live) <= self.policy.finalists:
                return
        self._next_pass()

    def _halve(self, after: str) -> None:
        self._keep(max(self.policy.finalists, math.ceil(len(self._live) / 2)), after)
        self._rungs += 1

    def _keep(self, places: int, after: str) -> None:
        ranked = self.live
        for place, id in enumerate(ranked[places:], start=places + 1):
            time = time_text(self._entrants[id].ns or 0.0)
            self._losers.append(
                Exit(id, f"{time} is place {place} of {len(ranked)} after {after}; {places} go on")
            )
        for loser in self._losers:
            self._put_out(loser.id, loser.reason)

    def _put_out(self, id: str, reason: str) -> None:
        entrant = self._live.pop(id, None)
        if entrant is None:
            return
        entrant.reason = reason
        if id in self._left:
            del self._left[id]
            self._end_of_pass()

    def _exits(self) -> tuple[Exit, ...]:
        exits, self._losers = tuple(self._losers), []
        return exits

"""Rounds: those who survived the first looks take turns, and are compared within each turn.

A pass takes one sample of everybody. What slows the device down for a while slows a whole pass, so
every pass is first brought to the same level; then each config's location is the median over its
passes. The first looks, taken at other times, no longer count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from whet.measure.racing.policy import RacePolicy
from whet.measure.racing.stats import (
    MEDIAN_GAP,
    gap_degrees,
    location_width,
    percent_text,
    t_quantile,
    time_text,
)

if TYPE_CHECKING:
    from whet.measure.racing.stats import Array

# From here on a config that is noisier than the others is believed to be.
_PASSES_TO_JUDGE_ONE = 8


def shared_passes(
    passes: Sequence[Mapping[str, float]], ids: Sequence[str]
) -> list[dict[str, float]]:
    """Nanoseconds of `ids`, from logs, in the passes that have them all."""
    whole = [one for one in passes if all(id in one for id in ids)]
    return [{id: math.exp(one[id]) for id in ids} for one in whole]


class Rounds:
    """`out` collects who cannot win any more, with the reason; whoever reads it empties it.

    The number of passes grows by `policy.growth` from round to round, and verdicts are given
    only at the end of a round: the more often one looks, the more often chance looks like a win.
    """

    def __init__(self, ids: Sequence[str], policy: RacePolicy) -> None:
        self.out: dict[str, str] = {}
        self.rounds = 0
        self.done = False
        self._policy = policy
        self._live = dict.fromkeys(ids)
        self.passes: list[dict[str, float]] = []
        self._left: dict[str, None] = {}
        self._round_ends_at = max(2, policy.first_samples)
        self._centres: dict[str, float] = {}

    def next_pass(self) -> list[str]:
        """Whom to sample once, in this order; the order turns so that a drift evens out."""
        if not self._left and not self.done:
            ids = list(self._live)
            if len(self.passes) % 2:
                ids.reverse()
            self._left = dict.fromkeys(ids)
            self.passes.append({})
        return list(self._left)

    def waits_for(self, id: str) -> bool:
        return id in self._left

    def add(self, id: str, log: float) -> None:
        self.passes[-1][id] = log
        del self._left[id]
        self._end_of_pass()

    def remove(self, id: str) -> None:
        self._live.pop(id, None)
        if id in self._left:
            del self._left[id]
            self._end_of_pass()

    def centre(self, id: str) -> float | None:
        """Log of the time relative to the field, as of the last finished round."""
        return self._centres.get(id)

    def _end_of_pass(self) -> None:
        if self._left or self.done:
            return
        if len(self._live) <= self._policy.finalists:
            self.done = True
        if self._live and len(self.passes) >= self._round_ends_at:
            self.rounds += 1
            self._round_ends_at *= self._policy.growth
            self._judge()

    def _judge(self) -> None:
        policy, ids, n = self._policy, list(self._live), len(self.passes)
        raw = np.array([[passed[id] for id in ids] for passed in self.passes])
        levels = np.median(raw, axis=1, keepdims=True)
        readings = raw - levels
        centres = np.sort(readings, axis=0)[(n - 1) // 2]
        halves = self._half_widths(readings)
        self._centres = dict(zip(ids, centres.tolist(), strict=True))
        best = int(np.argmin(centres + halves))
        times = np.exp(centres + np.median(levels)).tolist()
        texts = [
            f"{time_text(time)} ± {percent_text(math.expm1(half))}"
            for time, half in zip(times, halves.tolist(), strict=True)
        ]
        for index in np.flatnonzero(centres - halves > centres[best] + halves[best]).tolist():
            self._put_out(ids[index], f"{texts[index]} cannot beat {texts[best]}")
        self.done = float(halves[best]) <= policy.precision or n >= policy.max_samples
        ranked = [ids[index] for index in np.argsort(centres, kind="stable").tolist()]
        self._keep_best(ranked, dict(zip(ids, texts, strict=True)))
        self.done = self.done or len(self._live) <= policy.finalists

    def _keep_best(self, ranked: Sequence[str], texts: Mapping[str, str]) -> None:
        """At the end the finalists go on. Before it, of a crowd at most the better half does: if
        so many cannot be told apart, it matters little which one wins, and much what finding out
        costs."""
        policy = self._policy
        kept = policy.finalists if self.done else max(policy.crowd, math.ceil(len(ranked) / 2))
        onwards = f"{kept} enter the duel" if self.done else f"the best {kept} continue"
        for place, id in enumerate(ranked, start=1):
            if place > kept and id in self._live:
                reason = f"{texts[id]} is place {place} after {len(self.passes)} passes"
                self._put_out(id, f"{reason}, and {onwards}")

    def _half_widths(self, readings: Array) -> Array:
        n = len(readings)
        gaps = np.abs(np.diff(readings, axis=0))
        noise = np.full(gaps.shape[1], np.median(gaps) / MEDIAN_GAP)
        if n >= _PASSES_TO_JUDGE_ONE:
            noise = np.maximum(noise, np.median(gaps, axis=0) / MEDIAN_GAP)
        noise = np.maximum(noise, self._policy.noise_floor)
        quantile = t_quantile(self._policy.confidence, gap_degrees(gaps.size))
        return np.asarray(quantile * location_width(n) * noise)

    def _put_out(self, id: str, reason: str) -> None:
        self.out[id] = reason
        del self._live[id]

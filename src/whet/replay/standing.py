"""Which strategy came out ahead, which cannot be told from it, and which one to use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.measure.racing.stats import t_quantile
from whet.replay.scores import CONFIDENCE, Score, half_width

DEFAULT = "auto"

# Beyond these a difference is only that of sums in another order.
_DIGITS = 9


@dataclass(frozen=True)
class Lead:
    """By how much one strategy scored more than another, and half its confidence interval."""

    over: str
    by: float
    half: float

    @property
    def sure(self) -> bool:
        return abs(self.by) > self.half


def lead(one: Score, other: Score) -> Lead:
    """Repeats of one seed are compared with each other, since they see the same noise; where one
    of the two has more of them, the means are."""
    by = round(one.mean - other.mean, _DIGITS)
    counts = sorted(len(score.repeats) for score in (one, other))
    if counts[0] == counts[1]:
        return Lead(other.search, by, float(half_width(np.subtract(one.repeats, other.repeats))))
    if counts[0] < 2:
        return Lead(other.search, by, math.inf)
    errors = (np.std(s.repeats, ddof=1) / math.sqrt(len(s.repeats)) for s in (one, other))
    return Lead(other.search, by, t_quantile(CONFIDENCE, counts[0] - 1) * math.hypot(*errors))


@dataclass(frozen=True)
class Standing:
    """All strategies over one axis, the best first. `level` are those that cannot be told from the
    best, itself among them.

    To pick the best of many and then compare it with the next one finds no more differences than
    there are: among equals the two luckiest are nearer to each other than any two are.
    """

    order: tuple[Score, ...]

    @classmethod
    def of(cls, scores: Sequence[Score]) -> Standing:
        return cls(tuple(sorted(scores, key=lambda one: -one.mean)))

    @property
    def best(self) -> Score:
        return self.order[0]

    @property
    def level(self) -> tuple[str, ...]:
        others = (one for one in self.order[1:] if not lead(self.best, one).sure)
        return (self.best.search, *(one.search for one in others))

    def lead_of(self, search: str) -> Lead:
        """Of the best over the nearest one that cannot be told from it, or else the next; of any
        other over the best, which is negative."""
        mine = next(one for one in self.order if one.search == search)
        if mine is not self.best:
            return lead(mine, self.best)
        rivals = [one for one in self.order[1:] if one.search in self.level]
        return lead(mine, (rivals or self.order[1:])[0])


def recommended(standings: Sequence[Standing]) -> str | None:
    """One that is level with the best over every axis: the default where it is, else the one with
    the most. None where the axes agree on nobody."""
    level = set.intersection(*(set(one.level) for one in standings))
    if DEFAULT in level or not level:
        return DEFAULT if level else None
    totals = dict.fromkeys(sorted(level), 0.0)
    for standing in standings:
        for one in standing.order:
            if one.search in totals:
                totals[one.search] += one.mean
    return max(totals, key=lambda name: round(totals[name], _DIGITS))

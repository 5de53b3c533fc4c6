"""`Estimate`: how much faster one config is than another, by all the evidence there is.

The pick is the config with the least expected time. Asking for proof where there was no time for
one keeps a default that is twenty times slower; taking the lowest median of many takes whoever was
lucky. So the race's samples are shrunk for having chosen the config, rounds in which both ran side
by side count for more, and where these are few, what is likelier is done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from whet.measure.racing.stats import NORMAL_MAD, low_median

if TYPE_CHECKING:
    from whet.measure.racing.stats import Array

# Of a difference so much is left however alike the field looks: it may have one that is not.
LEAST_KEPT = 0.1

# Beyond so many times its noise a reading is somebody else's doing.
OUTLYING = 1.5


@dataclass(frozen=True)
class Estimate:
    """`gain` is the log of how many times faster; `error` its standard error, as well known as
    `degrees` of freedom allow."""

    gain: float
    error: float
    degrees: int

    @property
    def chance(self) -> float:
        """That it is faster at all."""
        if self.error == 0:
            return 1.0 if self.gain > 0 else 0.5 if self.gain == 0 else 0.0
        return t_chance(self.gain / self.error, self.degrees)


def with_pairs(
    raced: tuple[float, float] | None, logs: Sequence[float], noise: float, degrees: int
) -> Estimate | None:
    """The race's gain with its error and rounds since in which both ran, logs of one's time over
    the other's, as one. Of parts that disagree, what lies apart counts for less: a reading may be
    disturbed, and the device may have changed its pace since the race."""
    found = [(log, math.sqrt(2) * noise) for log in logs]
    if raced is not None:
        found.append(raced)
    if not found:
        return None
    values, errors = np.array(found).T
    weights = errors**-2.0
    centre, room = _weighted_median(values, weights), OUTLYING * errors
    for _ in range(8):
        centre = float(np.average(np.clip(values, centre - room, centre + room), weights=weights))
    return Estimate(centre, float(weights.sum()) ** -0.5, degrees)


def pooled(
    noise: float, degrees: int, logs: Sequence[float], raced: float | None
) -> tuple[float, int]:
    """The noise of one reading, known with so many degrees of freedom before these rounds of two.
    Where nothing was known, even a few rounds tell, by how far they are from what single looks at
    both said."""
    if not degrees and logs and raced is not None:
        noise = max(noise, low_median([abs(log - raced) for log in logs]) / NORMAL_MAD / 2)
    degrees = max(1, degrees)
    if len(logs) < 3:
        return noise, degrees
    more, middle = len(logs) // 2, float(np.median(logs))
    own = low_median([abs(log - middle) for log in logs]) / NORMAL_MAD / math.sqrt(2)
    return math.sqrt((degrees * noise**2 + more * own**2) / (degrees + more)), degrees + more


def _weighted_median(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    below = np.cumsum(weights[order]) / weights.sum()
    at = int(np.searchsorted(below, 0.5))
    tied = below[at] == 0.5
    return float(values[order[at : at + 1 + tied]].mean())


def usual(logs: Sequence[float], noise: float) -> float:
    """Their mean, in which nothing counts as slower than `OUTLYING` times the noise: what disturbs
    a kernel makes it slower."""
    ordered, room = sorted(logs), OUTLYING * noise
    total = 0.0
    for taken, (log, after) in enumerate(zip(ordered, [*ordered[1:], math.inf], strict=True), 1):
        total += log
        mean = (total + (len(ordered) - taken) * room) / taken
        if after >= mean + room:
            return mean
    return mean


def kept_of(centres: Sequence[float], error: float) -> float:
    """The share of a difference that remains of it, where the field was looked at with this error:
    James and Stein's, towards the mean. Nobody is lucky among two or three."""
    spread = float(np.square(np.asarray(centres) - np.mean(centres)).sum())
    if len(centres) <= 3 or spread == 0:
        return 1.0
    return max(LEAST_KEPT, 1 - (len(centres) - 3) * error**2 / spread)


def t_chance(t: float, degrees: int) -> float:
    """That Student's t is below `t`."""
    if degrees > 100:
        return 0.5 * math.erfc(-t / math.sqrt(2))
    angle = math.atan(t / math.sqrt(degrees))
    square = math.cos(angle) ** 2
    term = 1.0 if degrees % 2 == 0 else math.cos(angle)
    total = term if degrees > 1 else 0.0
    for at in range(2 + degrees % 2, degrees, 2):
        term *= square * (at - 1) / at
        total += term
    inside = math.sin(angle) * total
    return 0.5 + (inside / 2 if degrees % 2 == 0 else (angle + inside) / math.pi)

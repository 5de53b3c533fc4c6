"""`Estimate`: how much faster one config is than another, by all the evidence there is.

The pick is the config with the least expected time. Asking for proof where there was no time for
one keeps a default that is twenty times slower; taking the lowest median of many takes whoever was
lucky. So the race's samples are shrunk for having chosen the config, rounds in which both ran side
by side count for more, and where these are few, what is likelier is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from whet.measure.racing.stats import NORMAL_MAD, low_median

if TYPE_CHECKING:
    from whet.measure.racing.stats import Array

# Of a difference so much is left however alike the field looks: it may have one that is not.
LEAST_KEPT = 0.1

# Nobody is lucky among so many.
FEW = 3

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


@dataclass(frozen=True)
class Looks:
    """Logs of a config's samples, and the noise that they have in common, being of one visit."""

    logs: Sequence[float]
    between: float

    def error(self, noise: float) -> float:
        return math.hypot(noise / math.sqrt(len(self.logs)), self.between)


def estimated(
    field: Mapping[str, Looks],
    default: str,
    other: str,
    pairs: Sequence[tuple[float, float]],
    noise: float,
    degrees: int,
) -> Estimate | None:
    """How much faster `other` is than `default`, both of a field, with times that they took in
    turns since. The noise of a sample was known with so many degrees of freedom before.

    Rounds are compared each within itself, which a drift of the device does not touch, unless the
    samples of each config by themselves vary less: then what disturbs it hits single samples.
    """
    logs = [math.log(one / another) for one, another in pairs]
    if default not in field or other not in field:
        noise, degrees = _pooled(noise, degrees, logs, None)
        return _joined([(log, math.sqrt(2) * noise) for log in logs], degrees)
    alone = [[math.log(pair[at]) for pair in pairs] for at in (0, 1)]
    if len(pairs) >= 3 and _spread(alone) * math.sqrt(2) < _spread([logs]):
        noise, degrees = _mean_noise(noise, degrees, _spread(alone), len(pairs))
        gain = usual(alone[0], noise) - usual(alone[1], noise)
        raced = _raced(field, default, other, noise)
        return _joined([raced, (gain, math.sqrt(2 / len(pairs)) * noise)], degrees)
    seen = None
    if len(field) > FEW:
        seen = low_median(field[default].logs) - low_median(field[other].logs)
    noise, degrees = _pooled(noise, degrees, logs, seen)
    rounds = [(log, math.sqrt(2) * noise) for log in logs]
    return _joined([_raced(field, default, other, noise), *rounds], degrees)


def _raced(
    field: Mapping[str, Looks], default: str, other: str, noise: float
) -> tuple[float, float]:
    """The gain by the race, and its error. The other one is shrunk towards the field for having
    been chosen in it, as by James and Stein; the default was not chosen for its time."""
    centres = {id: usual(looks.logs, noise) for id, looks in field.items()}
    mean = sum(centres.values()) / len(centres)
    spread = sum((centre - mean) ** 2 for centre in centres.values())
    error, share = field[other].error(noise), 1.0
    if len(field) > FEW and spread > 0:
        share = max(LEAST_KEPT, 1 - (len(field) - FEW) * error**2 / spread)
    gain = centres[default] - mean - share * (centres[other] - mean)
    return gain, math.hypot(field[default].error(noise), math.sqrt(share) * error)


def _joined(found: Sequence[tuple[float, float]], degrees: int) -> Estimate | None:
    """Several gains, each with its error, as one. What lies apart counts for less: a reading may be
    disturbed, and the device may have changed its pace since the race."""
    if not found:
        return None
    values, errors = np.array(found).T
    weights = errors**-2.0
    centre, room = _weighted_median(values, weights), OUTLYING * errors
    for _ in range(8):
        centre = float(np.average(np.clip(values, centre - room, centre + room), weights=weights))
    return Estimate(centre, float(weights.sum()) ** -0.5, degrees)


def _pooled(
    noise: float, degrees: int, logs: Sequence[float], seen: float | None
) -> tuple[float, int]:
    """The noise with what rounds of two tell of it. Where nothing was known even one tells, by how
    far it is from what was `seen` of both alone."""
    if not degrees and logs and seen is not None:
        noise = max(noise, low_median([abs(log - seen) for log in logs]) / NORMAL_MAD / 2)
    if len(logs) < 3:
        return noise, max(1, degrees)
    return _mean_noise(noise, max(1, degrees), _spread([logs]) / math.sqrt(2), len(logs))


def _mean_noise(noise: float, degrees: int, own: float, readings: int) -> tuple[float, int]:
    more = readings // 2
    return math.sqrt((degrees * noise**2 + more * own**2) / (degrees + more)), degrees + more


def _spread(groups: Sequence[Sequence[float]]) -> float:
    """The noise within the groups, by their medians' distances, which outliers do not touch."""
    middles = [float(np.median(group)) for group in groups]
    apart = [abs(log - mid) for mid, group in zip(middles, groups, strict=True) for log in group]
    return low_median(apart) / NORMAL_MAD


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

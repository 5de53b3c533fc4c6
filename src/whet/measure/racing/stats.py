"""Noise, intervals and paired ratios.

Everything works on logarithms: timing noise is relative, and so are the differences one asks about.

An `Estimate` says how much faster one config is than another, by all the evidence there is. The
pick is the config with the least expected time. Asking for proof where there was no time for one
keeps a default that is twenty times slower; taking the lowest median of many takes whoever was
lucky. So the race's samples are shrunk for having chosen the config, rounds in which both ran side
by side count for more, and where these are few, what is likelier is done.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whet.core.timing import median_interval

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

# |x| of a reading with unit noise has this median, the normal's 75th percentile; |x - y| of two
# readings has the other.
NORMAL_MAD = 0.6744897501960817
MEDIAN_GAP = math.sqrt(2) * NORMAL_MAD

# The median of n readings is this much wider than their mean.
_MEDIAN_WIDTH = math.sqrt(math.pi / 2)

# The median of gaps knows about a third of what as many squared deviations would.
_GAPS_PER_DEGREE = 3

_EXACT_SIGNED_RANK = 60


class Ratio(NamedTuple):
    """`time of one / time of the other`, with the ends of its confidence interval."""

    low: float
    mid: float
    high: float


def low_median(values: Sequence[float]) -> float:
    """The median, or the lower of the middle two: of two readings one may be an outlier."""
    return sorted(values)[(len(values) - 1) // 2]


def middle_mean(readings: Array) -> Array:
    """Of each column: the mean of the middle half. Outliers do not touch it, and where a kernel
    runs at one of two speeds it does not jump from one to the other, as a median does."""
    count = len(readings)
    cut = count // 4
    return np.asarray(np.sort(readings, axis=0)[cut : count - cut].mean(axis=0))


def location_width(n: int) -> float:
    """How wide `low_median` of `n` readings scatters, in units of one reading's noise."""
    return min(1.0, _MEDIAN_WIDTH / math.sqrt(n))


@lru_cache(maxsize=4096)
def normal_quantile(p: float) -> float:
    from statistics import NormalDist  # slow to import

    return NormalDist().inv_cdf(p)


@lru_cache(maxsize=4096)
def t_quantile(confidence: float, degrees: int) -> float:
    """Student's two-sided quantile, right within 2 % for three degrees and more (n = 1, 2 exact).

    `t_quantile(0.95, 1) == 12.7…`, `t_quantile(0.95, 1000) == 1.96…`
    """
    p = (1 + confidence) / 2
    if degrees == 1:
        return math.tan(math.pi * (p - 0.5))
    if degrees == 2:
        return (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    z = normal_quantile(p)
    d = float(degrees)
    return (
        z
        + (z**3 + z) / (4 * d)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * d**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * d**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * d**4)
    )


def gap_degrees(gaps: int) -> int:
    """How many degrees of freedom a median of so many gaps is worth."""
    return max(1, gaps // _GAPS_PER_DEGREE)


class Noise:
    """The relative noise of one reading, pooled over every config of a race.

    One config with two readings says almost nothing about noise; a hundred such pairs do. The
    median of the gaps between neighbouring readings is untouched by outliers and slow drift.
    `floor` is what nobody may claim to be better than.
    """

    def __init__(self, floor: float) -> None:
        self._floor = floor
        self._gaps: list[float] = []

    def add(self, logs: Sequence[float]) -> None:
        """Readings of one config, in the order they were taken."""
        for one, next_one in pairwise(logs):
            insort(self._gaps, abs(next_one - one))

    @property
    def sigma(self) -> float:
        if not self._gaps:
            return self._floor
        return max(self._floor, self._gaps[len(self._gaps) // 2] / MEDIAN_GAP)

    @property
    def known(self) -> tuple[float, int]:
        """The noise, and how many degrees of freedom it is known with: a single gap tells nothing.
        Of few gaps the lower median counts: one of them may be an outlier's."""
        if len(self._gaps) < 2:
            return self._floor, 0
        return max(self._floor, low_median(self._gaps) / MEDIAN_GAP), gap_degrees(len(self._gaps))

    def quantile(self, confidence: float) -> float:
        """Wider than the normal distribution's while few gaps are known."""
        return t_quantile(confidence, gap_degrees(len(self._gaps)))

    def half_width(self, readings: int, shared: float, confidence: float) -> float:
        """How far from its true place `low_median` of so many readings may be, where `shared` is
        the noise that they have in common."""
        own = self.sigma * location_width(readings)
        return self.quantile(confidence) * math.hypot(own, shared)


def interval(
    samples: Sequence[float], confidence: float, noise: float | None = None
) -> tuple[float, float] | None:
    """A confidence interval of the median, also for few samples.

    Order statistics where there are enough samples for them, since these assume nothing. Below
    that, `noise` (the relative noise of one sample) around the location; None without it.
    """
    exact = median_interval(samples, confidence)
    if exact is not None or noise is None or not samples:
        return exact
    half = normal_quantile((1 + confidence) / 2) * noise * location_width(len(samples))
    middle = low_median(samples)
    return middle * math.exp(-half), middle * math.exp(half)


def paired_ratio(
    times: Sequence[float] | Array, others: Sequence[float] | Array, confidence: float
) -> Ratio | None:
    """The ratio of two kernels' times from readings taken side by side.

    Hodges–Lehmann with the signed-rank interval: the difference of two equally noisy log-readings
    is symmetric even when the readings themselves are skewed, and symmetry is all that this
    interval asks for; unlike the sign test it wastes little of a small sample. None while there
    are too few pairs for `confidence`.
    """
    gaps = np.log(np.asarray(times, dtype=np.float64) / np.asarray(others, dtype=np.float64))
    cut = _signed_rank_cut(len(gaps), confidence)
    if cut is None:
        return None
    rows, columns = np.triu_indices(len(gaps))
    averages = np.sort((gaps[rows] + gaps[columns]) / 2)
    low, mid, high = averages[cut], np.median(averages), averages[-1 - cut]
    return Ratio(math.exp(low), math.exp(mid), math.exp(high))


@lru_cache(maxsize=4096)
def _signed_rank_cut(n: int, confidence: float) -> int | None:
    """How many Walsh averages lie outside the interval at either end."""
    tail = (1 - confidence) / 2
    if n == 0 or 0.5**n > tail:
        return None
    if n > _EXACT_SIGNED_RANK:
        mean = n * (n + 1) / 4
        deviation = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, math.floor(mean + normal_quantile(tail) * deviation - 0.5))
    return int(np.searchsorted(_signed_rank_cdf(n), tail, side="right")) - 1


@lru_cache(maxsize=64)
def _signed_rank_cdf(n: int) -> Array:
    """P(W <= w) for the sum of the ranks 1…n that get a plus, each with probability 1/2."""
    chances = np.zeros(n * (n + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, n + 1):
        shifted = np.zeros_like(chances)
        shifted[rank:] = chances[:-rank]
        chances = (chances + shifted) / 2
    return np.cumsum(chances)


def time_text(ns: float) -> str:
    """`"950 ns"`, `"12.3 µs"`, `"4.56 ms"`, `"1.2 s"`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def percent_text(share: float) -> str:
    """`"0.05 %"`, `"1.2 %"`, `"135 %"`."""
    percent = 100 * share
    return f"{percent:.0f} %" if abs(percent) >= 99.5 else f"{percent:.2g} %"


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

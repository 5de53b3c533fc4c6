"""Pareto frontiers of tuning time and performance, and whether one lies above another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from whet.replay.pareto import SEQUENTIAL, Cloud
from whet.replay.repetition import Array, Ints

RESAMPLES = 200
TARGET = 0.95

# Less of the area under a frontier than this is nothing one would change a tuner for.
MATTERS = 0.01


@dataclass(frozen=True)
class Frontier:
    """The draws that no other draw beats in both, the quickest first."""

    rows: Ints
    seconds: Array
    fraction: Array

    @classmethod
    def of(cls, cloud: Cloud) -> Frontier:
        return _frontier(cloud.seconds.mean(axis=1), cloud.fraction.mean(axis=1))

    def seconds_to(self, fraction: float) -> float | None:
        """When it is reached; None where it never is."""
        at = int(np.searchsorted(self.fraction, fraction))
        return float(self.seconds[at]) if at < len(self.seconds) else None


@dataclass(frozen=True)
class Comparison:
    """`gain` is the difference in area, the mean fraction of the optimum over the logarithm of
    tuning time, with the ends of its confidence interval; `before` and `after` are the seconds to
    `TARGET` of the optimum."""

    name: str
    against: str
    gain: float
    low: float
    high: float
    before: float | None
    after: float | None

    @property
    def moves(self) -> bool:
        return abs(self.gain) >= MATTERS and not self.low <= 0 <= self.high

    @property
    def verdict(self) -> str:
        """One sentence, starting with what was changed."""
        if self.moves:
            does = "moves the frontier" if self.gain > 0 else "moves the frontier back"
        elif self.low <= 0 <= self.high:
            does = "does not move the frontier"
        else:
            does = "hardly moves the frontier"
        base = "" if self.against == SEQUENTIAL else f" beyond {self.against}"
        return (
            f"{self.name} {does}{base}: area {self.gain:+.3f} "
            f"(95 % interval {self.low:+.3f} to {self.high:+.3f}){self._reached}"
        )

    @property
    def _reached(self) -> str:
        if self.after is None and self.before is None:
            return ""
        times = ["never" if one is None else f"{one:.3g} s" for one in (self.after, self.before)]
        return f"; {100 * TARGET:.0f} % of the optimum after {times[0]} instead of {times[1]}"


def compare(cloud: Cloud, base: Cloud, name: str, seed: int = 0) -> Comparison:
    """The frontier is chosen by one half of the runs and read off the other, so that the lucky
    averages, of which many draws have more than few, are not mistaken for good ones."""
    times = np.concatenate([one.seconds.mean(axis=1) for one in (cloud, base)])
    span = float(times.min()), float(times.max())
    gains = _areas(cloud, span, seed) - _areas(base, span, seed)
    half = 1.96 * float(gains[1:].std())
    return Comparison(
        name,
        base.name,
        float(gains[0]),
        float(gains[0]) - half,
        float(gains[0]) + half,
        Frontier.of(base).seconds_to(TARGET),
        Frontier.of(cloud).seconds_to(TARGET),
    )


def _frontier(seconds: Array, fraction: Array) -> Frontier:
    order = np.lexsort((-fraction, seconds))
    before = np.concatenate([[-math.inf], np.maximum.accumulate(fraction[order])[:-1]])
    kept = order[fraction[order] > before]
    return Frontier(kept, seconds[kept], fraction[kept])


def _areas(cloud: Cloud, span: tuple[float, float], seed: int) -> Array:
    """The first as it is, the others with the runs of each half drawn anew. Clouds of the same
    shape are drawn alike, which pairs those that were simulated on the same runs."""
    rng = np.random.default_rng(seed)
    draws, runs = cloud.seconds.shape
    halves = np.arange(runs) < runs // 2, np.arange(runs) >= runs // 2
    areas = []
    for resample in range(RESAMPLES + 1):
        weights = []
        for half in halves:
            size = int(half.sum())
            rows = 1 if cloud.linked else draws
            drawn = rng.multinomial(size, [1 / size] * size, rows)
            counted = np.zeros((rows, runs))
            counted[:, half] = drawn / size if resample else 1 / size
            weights.append(counted)
        means = [
            ((cloud.seconds * one).sum(axis=1), (cloud.fraction * one).sum(axis=1))
            for one in weights
        ]
        pairs = ((means[0], means[1]), (means[1], means[0]))
        areas.append(sum(_area(chooser, reader, span) for chooser, reader in pairs) / 2)
    return np.array(areas)


def _area(
    chooser: tuple[Array, Array], reader: tuple[Array, Array], span: tuple[float, float]
) -> float:
    """The mean of the reader's fraction over log time, at the points that the chooser picks."""
    chosen = _frontier(*chooser)
    edges = np.log(np.concatenate([np.clip(chosen.seconds, *span), [span[1]]]))
    width = math.log(span[1] / span[0]) or 1.0
    return float((np.diff(edges) * reader[1][chosen.rows]).sum() / width)

"""What the model-free strategies share: the books they keep, how they start, what they avoid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from whet.core.config import Config
from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.core.trial import Trial
from whet.search.moves import LISTABLE, Array, Codes, Ground, ground_of

# Outcomes that are looked back at: the latest, so that asking stays quick.
MEMORY = 256
# How far an outcome is felt, in the units of an `Axis`.
REACH = 0.3
# A failure counts as so much slower than the slowest success, in log time.
FAILURE = 0.5
# What a config is credited for being one unit away from all that was tried.
NOVELTY = 0.3
# Every so often a fresh config, whatever the strategy would rather do.
EXPLORE_EVERY = 5
# Children to choose one from.
BROOD = 3
# Beyond this the last digits depend on the platform, and would decide between equals.
DIGITS = 9
# Random configs to choose a fresh one from.
DRAWN = 48
# And to have rated by what is known beforehand; drawing is slow where a space cannot be listed.
RATED, RATED_UNLISTED = 20_000, 1_000


class Ratings(Protocol):
    """What is known beforehand: log time relative to the best known, NaN where nothing is."""

    def scores(self, configs: Sequence[Config]) -> npt.NDArray[np.float64]: ...


class ModelFree:
    """Asks for `starts`, then for what `_move` proposes, and where that is nothing for a fresh one.

    The starts are the author's first config, what `transfer` rates best, and configs far from one
    another. A subclass gives `_move` and, if it keeps more than the scores, `_learn`.
    """

    guided = True
    starts = 5
    explore_every = EXPLORE_EVERY

    def __init__(self, space: Space, seed: int = 0, *, transfer: Ratings | None = None) -> None:
        self._space = space
        self._rng = np.random.default_rng(seed)
        self._transfer = transfer
        self._asked: dict[Codes, None] = {}
        self._scores: dict[Codes, float] = {}
        self._started = 0
        self._moves = 0

    def ask(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while len(asked) < n:
            codes = self._next()
            if codes is None:
                break
            self._ground.take(codes)
            self._asked[codes] = None
            asked.append(self._ground.config(codes))
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            codes = self._ground.chart.codes(trial.config)
            if codes is None:
                continue
            ns = trial.median_ns if trial.status.measured else None
            score = math.log(ns) if ns is not None and ns > 0 else math.inf
            self._ground.take(codes)
            self._scores[codes] = score
            self._learn(codes, score)

    def _move(self) -> Codes | None:
        """A free config; None where the strategy knows of nothing better than a fresh one.
        Called once there has been a success."""
        raise NotImplementedError

    def _learn(self, codes: Codes, score: float) -> None:
        """An outcome: the log of the time, infinite for a failure."""

    @cached_property
    def _ground(self) -> Ground:
        return ground_of(self._space)

    @property
    def _best(self) -> Codes | None:
        """The fastest so far; None before the first success."""
        best = min(self._scores, key=self._scores.__getitem__, default=None)
        return best if best is not None and math.isfinite(self._scores[best]) else None

    @property
    def _pending(self) -> list[Codes]:
        """Asked for lately, and not told of. What is never told of is forgotten."""
        return [codes for codes in list(self._asked)[-MEMORY // 4 :] if codes not in self._scores]

    def _next(self) -> Codes | None:
        if self._started < self.starts:
            self._started += 1
            return self._start()
        if self._best is None:
            return self._far()
        self._moves += 1
        move = self._move() if self._moves % self.explore_every else None
        return self._fresh() if move is None else move

    def _start(self) -> Codes | None:
        if self._started == 1 and self._space.first is not None:
            codes = self._ground.chart.codes(self._space.first)
            if codes is not None and codes not in self._scores:
                return codes
        while self._started % 3 and self._favourites:
            codes = self._favourites.pop(0)
            if codes not in self._asked and codes not in self._scores:
                return codes
        return self._far()

    @cached_property
    def _favourites(self) -> list[Codes]:
        """What `transfer` rates best among the free, best first."""
        if self._transfer is None:
            return []
        count = RATED if self._space.is_small(LISTABLE) else RATED_UNLISTED
        drawn = self._ground.draw(self._rng, count)
        ratings = self._transfer.scores([self._ground.config(codes) for codes in drawn])
        order = np.argsort(ratings, kind="stable")[: self.starts]
        return [drawn[at] for at in order if math.isfinite(ratings[at])]

    def _far(self) -> Codes | None:
        """Of a few random ones, that which is farthest from all known, failures above all."""
        drawn = self._ground.draw(self._rng, DRAWN // 4)
        if not drawn:
            return None
        points = self._ground.chart.points(drawn)
        return drawn[int(np.argmax(self._novelty(points) - self._risk(points)))]

    def _fresh(self) -> Codes | None:
        """Of some random ones, that which the outcomes around it promise most of."""
        return self._most_promising(self._ground.draw(self._rng, DRAWN), NOVELTY)

    def _most_promising(self, choice: Sequence[Codes], novelty: float = 0.0) -> Codes | None:
        if not choice:
            return None
        points = self._ground.chart.points(choice)
        outlook = self._outlook(points)
        if novelty:
            outlook -= novelty * self._novelty(points)
        return choice[int(np.argmin(outlook))]

    def _bred(self, breed: Callable[[], Codes | None]) -> Codes | None:
        """The most promising of a few that `breed` gives, which is not where others failed."""
        brood = [child for child in (breed() for _ in range(BROOD)) if child is not None]
        return self._most_promising(brood, NOVELTY / 3)

    def _polishing(self, codes: Codes) -> Codes | None:
        """The most promising free neighbour; None where all are taken."""
        return self._most_promising(self._ground.neighbours(codes))

    def _fittest(self, n: int) -> list[Codes]:
        """The `n` fastest so far, best first."""
        measured = [codes for codes, score in self._scores.items() if math.isfinite(score)]
        return sorted(measured, key=self._scores.__getitem__)[:n]

    def _novelty(self, points: Array) -> Array:
        """How far each point is from the closest that was asked for or told of."""
        known = list(dict.fromkeys([*self._asked, *self._scores]))[-MEMORY:]
        if not known:
            return np.zeros(len(points))
        return _rounded(self._between(points, known).min(axis=1))

    def _outlook(self, points: Array) -> Array:
        """Log time as the outcomes around each point suggest, the closer the more; failures count
        as slower than anything."""
        known = list(self._scores.items())[-MEMORY:]
        scores = np.array([score for _, score in known])
        measured = np.isfinite(scores)
        worst = scores[measured].max() if measured.any() else 0.0
        away = self._between(points, [codes for codes, _ in known])
        felt = np.exp((away.min(axis=1, keepdims=True) - away) / REACH)
        outlook = felt @ np.where(measured, scores, worst + FAILURE) / felt.sum(axis=1)
        return _rounded(outlook)

    def _risk(self, points: Array) -> Array:
        """The chance of failure, as the outcomes around each point suggest; 0 far from all."""
        known = list(self._scores.items())[-MEMORY:]
        failed = np.array([math.isinf(score) for _, score in known])
        if not failed.any():
            return np.zeros(len(points))
        felt = np.exp(-self._between(points, [codes for codes, _ in known]) / REACH)
        return _rounded(felt @ failed / (felt.sum(axis=1) + math.exp(-1 / REACH)))

    def _between(self, points: Array, codes: Sequence[Codes]) -> Array:
        others = self._ground.chart.points(codes)
        distances: Array = np.abs(points[:, None, :] - others[None, :, :]).sum(axis=2)
        return distances


def _rounded(values: Array) -> Array:
    rounded: Array = np.round(values, DIGITS)
    return rounded

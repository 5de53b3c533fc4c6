"""Simulated annealing on log time."""

from __future__ import annotations

import math

from whet.core.space import Space
from whet.search.model_free import Codes, ModelFree, Ratings

# How much slower, in log time, may be accepted: at first, at last, and what is left of it from one
# outcome to the next.
HOT, COLD, COOLING = 0.3, 0.01, 0.96
# Outcomes without progress after which a walk ends.
PATIENCE = 12
# Every so often a neighbour of the best instead of a step of the walk.
POLISH_EVERY = 3


class Anneal(ModelFree):
    """Walks: what is faster is moved to, what is slower with a chance that falls with the
    difference and with the number of outcomes. Steps get shorter as it cools down. A walk that
    makes no progress ends, and the next begins at the best config or, every other time, afresh.
    """

    name = "anneal"

    def __init__(self, space: Space, seed: int = 0, *, transfer: Ratings | None = None) -> None:
        super().__init__(space, seed, transfer=transfer)
        self._here: Codes | None = None
        self._record = math.inf
        self._idle = 0
        self._walks = 0

    @property
    def _temperature(self) -> float:
        return max(HOT * COOLING ** len(self._scores), COLD)

    def _move(self) -> Codes | None:
        if self._here is None:
            return None
        best = self._best
        if best is not None and self._moves % POLISH_EVERY == 0:
            return self._polishing(best) or self._bred(self._step)
        return self._bred(self._step)

    def _step(self) -> Codes | None:
        here, axes = self._here, self._pool.encoding.axes
        if here is None:
            return None
        heat = self._temperature / HOT
        target = list(here)
        changes = 1 + int(self._rng.random() < 0.5) + int(self._rng.random() < heat)
        for at in self._rng.permutation(len(axes))[:changes]:
            steps = int(self._rng.geometric(0.8 - 0.4 * heat))
            target[at] = axes[at].moved(here[at], steps, self._rng)
        return self._pool.nearest(self._pool.encoding.points([tuple(target)])[0], here, self._rng)

    def _learn(self, codes: Codes, score: float) -> None:
        if self._accepts(score):
            self._here = codes
        if score < self._record:
            self._record, self._idle = score, 0
            return
        self._idle += 1
        if self._idle >= PATIENCE:
            self._idle, self._walks = 0, self._walks + 1
            afresh = self._walks % 2 == 0
            self._here = None if afresh else self._best
            self._record = self._scores.get(self._here, math.inf) if self._here else math.inf

    def _accepts(self, score: float) -> bool:
        if not math.isfinite(score):
            return False
        slower = score - self._scores.get(self._here, math.inf) if self._here else 0.0
        return slower <= 0 or self._rng.random() < math.exp(-slower / self._temperature)

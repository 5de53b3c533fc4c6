"""A tree ensemble as the model, asked about a random share of the space and around the best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from whet.core.space import Space
from whet.learn.gaussian import expected_improvement
from whet.learn.prior import Prior
from whet.learn.trees import Trees
from whet.search.modelled import Floats, Modelled

# The ensemble is grown anew after so many outcomes, or a tenth more where that is more.
REGROW = 6
TREES = 14
# Random candidates beside the neighbours of the best few.
RANDOM, CENTRES = 800, 3
# Every so often a random config far from what is known, whatever the trees say.
EXPLORE_EVERY = 10


class Forest(Modelled):
    """Expected improvement from the mean of the trees and how far they disagree."""

    name = "forest"

    def __init__(self, space: Space, seed: int = 0, *, transfer: Prior | None = None) -> None:
        super().__init__(space, seed, transfer=transfer)
        self._trees: Trees | None = None
        self._grown_at = 0
        self._turn = 0

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        self._turn += 1
        if self._turn % EXPLORE_EVERY == 0:
            return self._away(free)
        rows = self._moves(free)
        mean, deviation = self._model().predict(self._seen(rows))
        best = self._outcomes.best
        shown, doubt = mean.astype(np.float32), deviation.astype(np.float32) + np.float32(0.02)
        gain = expected_improvement(shown, doubt, best)
        gain *= self._succeeding()[rows].astype(np.float32)
        for row in list(self._pending)[-32:]:
            gain *= 1 - self._closeness(row)[rows].astype(np.float32)
        return int(rows[int(np.argmax(gain))])

    def _moves(self, free: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Candidates: neighbours of the best few, what the prior likes, and random ones."""
        around = [self._candidates.neighbours(row) for row in self._outcomes.fastest(CENTRES)]
        some = self._rng.choice(free, min(RANDOM, len(free)), replace=False)
        rated: Sequence[int] = []
        if self._ratings is not None:
            liked = np.argsort(self._ratings, kind="stable")[:RANDOM]
            rated = liked[self._candidates.free[liked]].tolist()
        return np.unique(np.concatenate([some, *around, np.array(rated, dtype=np.intp)]))

    def _model(self) -> Trees:
        known = len(self._outcomes.logs)
        if self._trees is None or known >= self._grown_at + max(REGROW, self._grown_at // 10):
            self._grown_at = known
            rows = np.array(list(self._outcomes.logs), dtype=np.intp)
            logs = np.array(list(self._outcomes.logs.values()))
            seed = int(self._rng.integers(2**31))
            self._trees = Trees.grown(self._seen(rows), logs, seed, trees=TREES)
        return self._trees

    def _seen(self, rows: npt.NDArray[np.intp]) -> Floats:
        """The features, and the prior's rating as one more: trees use it where it helps."""
        points = self._points[rows].astype(np.float64)
        if self._ratings is None:
            return points
        rated = np.full(len(self._points), float(np.median(self._ratings)))
        rated[: len(self._ratings)] = self._ratings
        return np.hstack([points, rated[rows][:, None]])

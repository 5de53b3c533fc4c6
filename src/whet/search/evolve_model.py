"""A population evolved against a learned cost model, of which only the best few are measured.

The model is cheap and the device is not: generations of mutants and crossings are rated by trees
grown on what has been measured, and the top of the last generations is asked for.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from whet.core.space import Space
from whet.learn.prior import Prior
from whet.learn.trees import Trees
from whet.search.modelled import Floats, Modelled

POPULATION, GENERATIONS = 64, 4
# So many are measured before the model is fitted again; one in so many is random.
ROUND, RANDOM_EVERY = 8, 3
# The share of a new generation that is crossed; the rest mutates.
CROSSED = 0.3
_TRIES = 4
# The model: so many trees, of which the mean counts less so many times how far they disagree.
TREES, DOUBT = 30, 1.0
# A config is as slow as it matters if it takes e to the power of this times as long as the best.
SLOW = 3.0


class EvolveModel(Modelled):
    name = "evolve-model"

    def __init__(self, space: Space, seed: int = 0, *, transfer: Prior | None = None) -> None:
        super().__init__(space, seed, transfer=transfer)
        self._queue: list[int] = []
        self._turn = 0

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        self._turn += 1
        if self._turn % RANDOM_EVERY == 0:
            return self._drawn(free)
        queue = [row for row in self._queue if self._candidates.free[row]]
        if not queue:
            queue = self._evolved(free)
        self._queue = queue[1:]
        return queue[0] if queue else self._away(free)

    def _drawn(self, free: npt.NDArray[np.intp]) -> int:
        """A random one, more often what is likely to work; the likeliest would be small and slow
        each time, and a model that has settled for the wrong region would never leave it."""
        chance = self._succeeding()[free]
        return int(self._rng.choice(free, p=chance / chance.sum()))

    def _evolved(self, free: npt.NDArray[np.intp]) -> list[int]:
        """The next round: the best rated of all generations that are still free."""
        model = self._model()
        rated: dict[int, float] = {}

        def rate(generation: list[int]) -> None:
            new = [row for row in dict.fromkeys(generation) if row not in rated]
            if new:
                rated.update(zip(new, self._rate(model, new).tolist(), strict=True))

        generation = self._ancestors(free)
        rate(generation)
        for _ in range(GENERATIONS):
            parents = sorted(dict.fromkeys(generation), key=rated.__getitem__)[: POPULATION // 2]
            generation = parents + [self._child(parents) for _ in range(POPULATION // 2)]
            rate(generation)
        order = sorted(rated, key=rated.__getitem__)
        return self._apart([row for row in order if self._candidates.free[row]])

    def _apart(self, order: list[int]) -> list[int]:
        """The best of the order, and not a row of near-copies: one more step apart each time."""
        codes = self._candidates.codes
        chosen: list[int] = []
        for row in order:
            alike = sum(int((codes[row] != codes[other]).sum() < 2) for other in chosen)
            if alike < 2:
                chosen.append(row)
            if len(chosen) == ROUND:
                break
        return chosen

    def _ancestors(self, free: npt.NDArray[np.intp]) -> list[int]:
        fastest = self._outcomes.fastest(POPULATION // 4)
        drawn = self._rng.choice(free, min(POPULATION, len(free)), replace=False).tolist()
        if self._ratings is not None:
            liked = np.argsort(self._ratings, kind="stable")[: POPULATION // 2]
            drawn = [*liked.tolist(), *drawn]
        return [*fastest, *drawn]

    def _child(self, parents: list[int]) -> int:
        """A valid mutant or crossing; the parent itself where none is found in a few tries."""
        codes = self._candidates.codes
        mother = parents[self._lower(len(parents))]
        for _ in range(_TRIES):
            genes = codes[mother].copy()
            if self._rng.random() < CROSSED:
                father = codes[parents[self._lower(len(parents))]]
                mask = self._rng.random(len(genes)) < 0.5
                genes[mask] = father[mask]
            else:
                self._mutate(genes)
            row = self._candidates.admit(genes.tolist())
            if row is not None and row != mother:
                return row
        return mother

    def _lower(self, n: int) -> int:
        """A place near the top of a sorted list, more often than not."""
        return int(min(self._rng.integers(n), self._rng.integers(n)))

    def _mutate(self, genes: npt.NDArray[np.int32]) -> None:
        book = self._candidates.book
        at = int(self._rng.integers(len(genes)))
        choices = len(book.parameters[at].values) + book.optional[at]
        genes[at] = (genes[at] + 1 + self._rng.integers(max(1, choices - 1))) % choices

    def _model(self) -> Trees:
        rows = np.array(list(self._outcomes.logs), dtype=np.intp)
        logs = np.array(list(self._outcomes.logs.values()))
        # Fast configs matter most, and a slow one is only to be known as slow.
        near = np.minimum(logs, self._outcomes.best + SLOW)
        seed = int(self._rng.integers(2**31))
        return Trees.grown(self._points[rows].astype(np.float64), near, seed, trees=TREES)

    def _rate(self, model: Trees, rows: list[int]) -> Floats:
        """The log time that may be hoped for, with a malus for what is likely to fail. Rated by the
        mean alone, a population stays where the first good ones were."""
        mean, doubt = model.predict(self._points[rows].astype(np.float64))
        rated: Floats = mean - DOUBT * doubt
        if self._ratings is not None:
            trust = 8 / (8 + len(self._outcomes.logs))
            known = [row if row < len(self._ratings) else 0 for row in rows]
            rated = (1 - trust) * rated + trust * (self._outcomes.best + self._ratings[known])
        chance = self._succeeding()[rows]
        penalty: Floats = rated - np.log(chance) / math.log(2)
        return penalty

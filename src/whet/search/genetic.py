"""A genetic algorithm that breeds one child at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whet.search.model_free import Codes, ModelFree

POPULATION = 12
TOURNAMENT = 3
# The chance of one step, of two half of that, and so on.
ONE_STEP = 0.5


class Genetic(ModelFree):
    """The fastest configs so far are the population, so the best are never lost. Parents win a
    tournament; a child has values of both, some of them moved on by a few steps or swaps, and is
    brought to the nearest valid config that nobody has tried.
    """

    name = "genetic"

    def _move(self) -> Codes | None:
        population = self._fittest(POPULATION)
        return self._bred(lambda: self._child(population))

    def _child(self, population: Sequence[Codes]) -> Codes | None:
        mother, father = self._parent(population), self._parent(population)
        genes = [
            one if from_mother else other
            for one, other, from_mother in zip(
                mother, father, self._crossing(len(mother)), strict=True
            )
        ]
        self._mutate(genes, surely=tuple(genes) in (mother, father))
        point = self._pool.encoding.points([tuple(genes)])[0]
        return self._pool.nearest(point, mother, self._rng)

    def _parent(self, population: Sequence[Codes]) -> Codes:
        """The population is sorted, so the lowest place wins the tournament."""
        return population[int(self._rng.integers(len(population), size=TOURNAMENT).min())]

    def _crossing(self, width: int) -> list[bool]:
        """Uniform, or at one point: neighbouring parameters often belong together."""
        if self._rng.random() < 0.5:
            return [bool(draw < 0.5) for draw in self._rng.random(width)]
        point = int(self._rng.integers(width + 1))
        return [at < point for at in range(width)]

    def _mutate(self, genes: list[int], surely: bool) -> None:
        width = len(genes)
        moved = np.flatnonzero(self._rng.random(width) < 1 / max(width, 1)).tolist()
        if surely and width and not moved:
            moved = [int(self._rng.integers(width))]
        for at in moved:
            steps = int(self._rng.geometric(ONE_STEP))
            genes[at] = self._pool.encoding.axes[at].moved(genes[at], steps, self._rng)

"""Differential evolution on the coordinates of configs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whet.search.model_free import Codes, ModelFree

POPULATION = 12
# With fewer there is no difference between two others to go by.
FEWEST = 4
# The share of the population that counts as its best.
ELITE = 0.25
# How much of a difference is added, and how much of the result a child takes.
SCALE = (0.4, 1.0)
CROSSING = 0.7


class Evolution(ModelFree):
    """A child starts from a member of the population, goes some way towards one of the best and
    along the difference of two others, keeps some of its coordinates, and is brought to the nearest
    valid config that nobody has tried. The fastest configs so far are the population.
    """

    name = "evolution"

    def _move(self) -> Codes | None:
        population = self._fittest(POPULATION)
        if len(population) < FEWEST:
            return None
        return self._bred(lambda: self._child(population))

    def _child(self, population: Sequence[Codes]) -> Codes | None:
        points = self._pool.encoding.points(population)
        member, one, other = self._rng.permutation(len(points))[:3]
        elite = self._rng.integers(max(1, int(ELITE * len(points))))
        scale = self._rng.uniform(*SCALE)
        towards = points[elite] - points[member] + points[one] - points[other]
        crossing = self._rng.random(len(towards)) < CROSSING
        child = points[member] + np.where(crossing, scale * towards, 0.0)
        return self._pool.nearest(child, population[member], self._rng)

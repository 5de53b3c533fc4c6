"""Tree-structured Parzen estimator: what good configs have more often than the others."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from whet.learn.features import Codebook, Codes
from whet.search.modelled import Floats, Modelled

# The share of outcomes that counts as good, and the most that do.
GOOD_SHARE, MOST_GOOD = 0.2, 20
# How far a value lends weight to the others of its parameter, ordered ones along their order.
WIDTH = 0.2
# The weight of all values being alike.
FLAT = 1.0
# Candidates drawn for one choice.
DRAWN = 48


class Tpe(Modelled):
    """Failures count as bad outcomes, and so does what is still being tried, which keeps the
    configs of a batch apart."""

    name = "tpe"
    starts = 10

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        good = self._outcomes.fastest(
            min(MOST_GOOD, max(2, math.ceil(GOOD_SHARE * len(self._outcomes))))
        )
        chosen = set(good)
        bad = [row for row in self._outcomes.logs if row not in chosen]
        bad += [*self._outcomes.failed, *self._pending]
        codes = self._candidates.codes
        likely = self._densities(codes, good)
        ratio = likely - self._densities(codes, bad)
        if self._ratings is not None:
            # Worth as much as a few outcomes, and less with every further one.
            rated = np.zeros(len(codes))
            rated[: len(self._ratings)] = self._ratings
            ratio -= rated * 10 / (10 + len(self._outcomes))
        ratio += np.log(self._succeeding())
        return self._most(ratio, self._drawn(likely, free))

    def _drawn(self, likely: Floats, free: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Some of the free rows, drawn as good configs are spread: what is best of all free ones
        would be the same few again and again."""
        weights = np.exp(likely[free] - likely[free].max())
        count = min(DRAWN, int((weights > 0).sum()))
        drawn = self._rng.choice(free, count, replace=False, p=weights / weights.sum())
        return np.asarray(drawn, dtype=np.intp)

    def _densities(self, codes: Codes, rows: list[int]) -> Floats:
        """The log density of every candidate, one factor a parameter, up to a constant."""
        total = np.zeros(len(codes))
        for at, table in enumerate(self._kernels):
            weights = table[codes[rows, at]].sum(axis=0) + FLAT / len(table)
            total += np.log(weights)[codes[:, at]]
        return total

    @property
    def _kernels(self) -> list[Floats]:
        kernels: list[Floats] | None = self.__dict__.get("_tables")
        if kernels is None:
            kernels = self.__dict__["_tables"] = _kernels(self._candidates.book)
        return kernels


def _kernels(book: Codebook) -> list[Floats]:
    """For each parameter, how much every value lends to every other; rows add up to 1."""
    kernels = []
    for at, parameter in enumerate(book.parameters):
        rows = np.array([parameter.encode(value) for value in parameter.values])
        if book.optional[at]:
            rows = np.vstack([rows, np.full(rows.shape[1], 2.0)])
        apart = np.sqrt(((rows[:, None] - rows[None]) ** 2).sum(axis=2))
        kernel = np.exp(-apart / WIDTH)
        kernels.append(kernel / kernel.sum(axis=1, keepdims=True))
    return kernels

"""Gaussian processes that choose together.

They see different features of a config, so that where one is blind another is not; and only one of
them listens to what is known from elsewhere.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.learn.features import Features, Points
from whet.learn.prior import Prior
from whet.search.gp import GaussianProcess, Surrogate
from whet.search.modelled import Floats

# So many of the first configs are the prior's choice; from a later one on, every second of so many
# is far from the others.
TRUSTED = 8
AFRESH_FROM, AFRESH = 12, 4
# How much the rules of thumb count where there is a prior.
RULES_BESIDE_PRIOR = 0.3


class TwoViews(GaussianProcess):
    """A process that sees products of parameters, one that does not, and one with the prior.

    The first two know the rules of thumb beforehand, the third those and the prior; each weighs
    what it was told by how far outcomes bear it out. With a prior the first configs are the
    prior's alone. Soon after them come some far from one another, as a search without a prior
    starts: where the prior is wrong, its search is not to end around its favourites.
    """

    favoured = 5

    def __init__(self, space: Space, seed: int = 0, *, transfer: Prior | None = None) -> None:
        super().__init__(space, seed, transfer=transfer)
        self._afresh: list[int] | None = None

    @cached_property
    def _surrogates(self) -> list[Surrogate]:
        surrogates = [Surrogate(), Surrogate()]
        if self._sources is None:
            return surrogates
        rules = [] if self._rules.silent else [RULES_BESIDE_PRIOR]
        return [*surrogates, Surrogate(np.append(self._source_weights, rules))]

    @cached_property
    def _plain(self) -> Features:
        return Features(self._candidates.book, self._candidates.codes, products=False)

    def _views(self) -> list[Points]:
        return [self._points, self._grown("plain", self._plain), self._points]

    def _opinions(self) -> list[Floats | None]:
        rules = None if self._rated_by_rule is None else self._rated_by_rule[:, None]
        prior = self._prior_opinions
        if prior is not None and rules is not None:
            prior = np.hstack([prior, rules])
        return [rules, rules, prior]

    def _started(self, free: npt.NDArray[np.intp]) -> list[int]:
        if self._sources is None:
            return super()._started(free)
        # Few sources agree by chance: their second best is no better than what a surrogate finds.
        return self._favourites(min(self.favoured, 1 + self._sources.shape[1]))

    def _choosers(self) -> list[int]:
        if self._sources is None:
            return [0, 1]
        return [2] if self._tried < TRUSTED else [0, 1, 2]

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        if self._sources is not None and self._tried >= AFRESH_FROM and self._tried % 2:
            if self._afresh is None:
                self._afresh = self._scattered(free, AFRESH)
            while self._afresh:
                row = self._afresh.pop(0)
                if self._candidates.free[row]:
                    return row
        return super()._choose(free)

    @property
    def _tried(self) -> int:
        return len(self._outcomes) + len(self._pending)

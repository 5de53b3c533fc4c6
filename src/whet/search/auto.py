"""What to use when nobody says.

A space that is raced whole is taken in a random order after the author's first config: there the
order decides only how good the best so far is at any time, and a random one beats the author's,
in which neighbours are alike. A larger one is searched by two Gaussian processes in turn. They see
different features of a config, so that where one is blind the other is not; and only one of them
listens to what is known from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from whet.core.config import Config
from whet.core.space import Space
from whet.core.trial import Trial
from whet.learn.features import Features, Points
from whet.learn.prior import Prior
from whet.search.gp import Belief, GaussianProcess
from whet.search.modelled import Floats
from whet.search.random import Random
from whet.search.strategy import Strategy

# A space of so many configs is raced whole.
RACED_WHOLE = 1024
# The prior's share: all of the first configs, then every second, and where that no longer finds
# anything better every twelfth.
TRUSTED, PATIENCE = 7, 3
OFTEN, SELDOM = 2, 12


class TwoViews(GaussianProcess):
    """A process that sees products of parameters, one that does not, and one with the prior."""

    favoured = 5

    def __init__(self, space: Space, seed: int = 0, *, transfer: Prior | None = None) -> None:
        super().__init__(space, seed, transfer=transfer)
        self._prior_rows: list[tuple[int, float]] = []
        self._plan: list[int] | None = None

    @cached_property
    def _beliefs(self) -> list[Belief]:
        beliefs = [Belief(), Belief()]
        return beliefs if self._sources is None else [*beliefs, Belief(self._source_weights)]

    @cached_property
    def _plain(self) -> Features:
        return Features(self._candidates.book, self._candidates.codes, products=False)

    def _views(self) -> list[Points]:
        return [self._points, self._grown("plain", self._plain), self._points]

    def _opinions(self) -> list[Floats | None]:
        usual = None if self._rated_by_rule is None else self._rated_by_rule[:, None]
        return [usual, usual, self._prior_opinions]

    def _started(self, free: npt.NDArray[np.intp]) -> list[int]:
        if self._sources is None:
            return super()._started(free)
        return self._favourites(self.favoured)

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        if self._sources is None:
            return super()._choose(free)
        best = self._outcomes.best
        if self._turn + self.favoured >= TRUSTED and not self._is_priors_turn(self._turn + 1):
            if self._plan is None:
                self._plan = self._scattered(free, self.starts)
            while self._plan:
                row = self._plan.pop(0)
                if self._candidates.free[row]:
                    self._turn += 1
                    return row
        row = super()._choose(free)
        if self._is_priors_turn(self._turn):
            self._prior_rows.append((row, best))
        return row

    def _choosers(self) -> list[int]:
        prior = self._sources is not None and self._is_priors_turn(self._turn)
        return [2] if prior else [0, 1]

    def _is_priors_turn(self, turn: int) -> bool:
        """Whether the process with the prior chooses, which is how much it has proved."""
        if turn + self.favoured <= TRUSTED:
            return True
        return turn % (OFTEN if self._productive else SELDOM) == 0

    @property
    def _productive(self) -> bool:
        """Whether one of the prior's latest choices was the best until then."""
        logs = self._outcomes.logs
        latest = self._prior_rows[-PATIENCE:]
        return any(logs.get(row, math.inf) < best for row, best in latest)


class Auto:
    name = "auto"

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        *,
        transfer: Prior | None = None,
        whole: bool | None = None,
    ) -> None:
        self._strategy: Strategy
        if whole is None:
            whole = space.is_small(RACED_WHOLE)
        if transfer is None and whole and space.is_small(RACED_WHOLE):
            self._strategy = Random(space, seed)
        else:
            self._strategy = TwoViews(space, seed, transfer=transfer)

    @property
    def guided(self) -> bool:
        return isinstance(self._strategy, TwoViews)

    def ask(self, n: int) -> list[Config]:
        return self._strategy.ask(n)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._strategy.tell(trials)

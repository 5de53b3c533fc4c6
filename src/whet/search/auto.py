"""What to use when nobody says: all of a small space, a sample of a large one."""

from __future__ import annotations

from collections.abc import Sequence

from whet.core.config import Config
from whet.core.space import Space
from whet.core.trial import Trial
from whet.search.grid import Grid
from whet.search.random import Random
from whet.search.strategy import Strategy

SMALL = 512


class Auto:
    name = "auto"

    def __init__(self, space: Space, seed: int = 0) -> None:
        self._chosen: Strategy = Grid(space) if space.is_small(SMALL) else Random(space, seed)

    def ask(self, n: int) -> list[Config]:
        return self._chosen.ask(n)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._chosen.tell(trials)

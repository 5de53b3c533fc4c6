"""Every config, in the author's order."""

from __future__ import annotations

from whet.core.space import Space
from whet.search.ordered import Ordered


class Grid(Ordered):
    name = "grid"

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__()
        self._configs = iter(space)

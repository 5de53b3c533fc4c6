"""Coordinate descent: one parameter at a time, from several starts, with a full local polish."""

from __future__ import annotations

from collections import Counter

from whet.core.space import Space
from whet.search.model_free import Codes, ModelFree, Ratings

# Fresh starts once a config is known to be better than all its neighbours.
RESTARTS = 3
# So many neighbours of one config are waited for at a time, and of so many configs.
NEIGHBOURS_AT_ONCE, BASES_AT_ONCE = 3, 2


class Coordinate(ModelFree):
    """Tries the neighbours of the best config, in every parameter, the most promising first; one
    that is better is the next to move from. When all of them are worse, it starts anew a few
    times, and goes on from the best of those that still have neighbours to try.
    """

    name = "coordinate"
    # It explores by starting anew, and never before the best is polished.
    explore_every = 2**62

    def __init__(self, space: Space, seed: int = 0, *, transfer: Ratings | None = None) -> None:
        super().__init__(space, seed, transfer=transfer)
        self._polished: set[Codes] = set()
        self._base_of: dict[Codes, Codes] = {}
        self._restarts = 0

    def _move(self) -> Codes | None:
        if self._restarts:
            self._restarts -= 1
            return None
        waiting = Counter(self._base_of.get(codes) for codes in self._pending)
        busy = 0
        for base in self._fittest(len(self._scores)):
            if busy == BASES_AT_ONCE:
                break
            if base in self._polished:
                continue
            if waiting[base] >= NEIGHBOURS_AT_ONCE:
                busy += 1
                continue
            neighbour = self._polishing(base)
            if neighbour is not None:
                self._base_of[neighbour] = base
                return neighbour
            self._polished.add(base)
            self._restarts = RESTARTS - 1
            break
        return None

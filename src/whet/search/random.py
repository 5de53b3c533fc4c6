"""Uniform without repetition, after the author's first config.

The chance that one of n random configs is among the fastest 5 % is 1 − 0.95ⁿ: 78.5 % for 30, and
it takes 59 for 95 %. `whet replay h200-gemm-576 --workloads 1 --search random --top 5%` shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whet.core.config import Config
from whet.core.space import Space
from whet.search.ordered import Ordered

CHUNK = 256


class Random(Ordered):
    name = "random"

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__()
        self._space = space
        self._generator = np.random.default_rng(seed)
        self._configs = self._draw()

    def _draw(self) -> Iterator[Config]:
        """Draws in chunks while most of a chunk is new; then lists what is left and shuffles it,
        which a space that is too large to list never comes to."""
        if self._space.first is None:
            return
        yield self._space.first
        if not self._space.is_small(4 * CHUNK):
            while True:
                chunk = self._space.sample(self._generator, CHUNK)
                new = [config for config in chunk if config not in self._seen]
                yield from new
                if len(new) < len(chunk) / 2:
                    break
        left = [config for config in self._space if config not in self._seen]
        yield from (left[i] for i in self._generator.permutation(len(left)))

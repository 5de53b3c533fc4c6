"""Uniform without repetition, after the author's first config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from whet.core.config import Config
from whet.core.space import Space
from whet.core.trial import Trial

CHUNK = 256


class Random:
    name = "random"

    def __init__(self, space: Space, seed: int = 0) -> None:
        self._space = space
        self._generator = np.random.default_rng(seed)
        self._seen: set[Config] = set()
        self._configs = self._draw()

    def ask(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while len(asked) < n:
            config = next(self._configs, None)
            if config is None:
                break
            if config not in self._seen:
                self._seen.add(config)
                asked.append(config)
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        self._seen.update(trial.config for trial in trials)

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

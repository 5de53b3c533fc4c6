"""Strategies that learn nothing from outcomes: every config in the author's order, or at random, or
none at all; and a few configs that stand for a whole list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from whet.core.config import Config
from whet.core.space import Space
from whet.core.trial import Trial

CHUNK = 256


class Unguided:
    """Asks for the configs of `_configs` one after another, skipping those it knows of."""

    guided = False

    _configs: Iterator[Config]

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def ask(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while len(asked) < n:
            config = next(self._configs, None)
            if config is None:
                break
            if config.id not in self._seen:
                self._seen.add(config.id)
                asked.append(config)
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        self._seen.update(trial.config.id for trial in trials)


class Grid(Unguided):
    """Every config, in the author's order."""

    name = "grid"

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__()
        self._configs = iter(space)


class Random(Unguided):
    """Uniform without repetition, after the author's first config.

    The chance that one of n random configs is among the fastest 5 % is 1 − 0.95ⁿ: 78.5 % for 30,
    and it takes 59 for 95 %. `whet lab replay h200-gemm-576 --workloads 1 --search random --top 5%`
    shows it.
    """

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
                new = [config for config in chunk if config.id not in self._seen]
                yield from new
                if len(new) < len(chunk) / 2:
                    break
        left = [config for config in self._space if config.id not in self._seen]
        yield from (left[i] for i in self._generator.permutation(len(left)))


class Given:
    """Asks for nothing: what is tried is up to the run, and that is enough."""

    name = "quick"
    guided = False
    enough = True

    def ask(self, n: int) -> list[Config]:
        return []

    def tell(self, trials: Sequence[Trial]) -> None:
        pass


def spread(space: Space, n: int) -> list[Config]:
    """`n` configs that stand for a whole list: the author's first, and then each as far as can be
    from those before it."""
    configs = list(space)
    if n >= len(configs):
        return configs
    points = space.encode(configs)
    chosen = [0]
    nearest = ((points - points[0]) ** 2).sum(axis=1)
    while len(chosen) < n:
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return [configs[at] for at in chosen]

"""Every config, in the author's order."""

from __future__ import annotations

from collections.abc import Sequence

from whet.core.config import Config
from whet.core.space import Space
from whet.core.trial import Trial


class Grid:
    name = "grid"

    def __init__(self, space: Space, seed: int = 0) -> None:
        self._configs = iter(space)
        self._seen: set[Config] = set()

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

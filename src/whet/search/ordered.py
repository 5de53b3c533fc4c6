"""What strategies that merely go through configs have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whet.core.config import Config
from whet.core.trial import Trial


class Ordered:
    """Asks for the configs of `_configs` one after another, skipping those it knows of."""

    _configs: Iterator[Config]

    def __init__(self) -> None:
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

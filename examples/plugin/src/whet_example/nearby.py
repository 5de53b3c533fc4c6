"""`whet tune kernel.py:blur --search nearby`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whet.core.config import Config
from whet.core.space import Space
from whet.core.trial import Trial

LISTED = 4096
SAMPLED = 64


class Nearby:
    """In turn a random config and the one of a few random ones that is nearest to the best so far,
    which differs from it in the fewest parameters."""

    name = "nearby"
    guided = True

    def __init__(self, space: Space, seed: int = 0) -> None:
        self._space = space
        self._generator = np.random.default_rng(seed)
        self._seen: set[Config] = set()
        self._times: dict[Config, float] = {}

    def ask(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while len(asked) < n and (candidates := self._candidates()):
            config = candidates[0]
            if self._times and len(self._seen) % 2:
                best = min(self._times, key=self._times.__getitem__)
                config = min(candidates, key=lambda one: _distance(one, best))
            self._seen.add(config)
            asked.append(config)
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self._seen.add(trial.config)
            self._times.pop(trial.config, None)
            if trial.median_ns is not None and not trial.status.failed:
                self._times[trial.config] = trial.median_ns

    def _candidates(self) -> list[Config]:
        """Configs that were not asked for, in random order; none when there are no more."""
        first = self._space.first
        if first is None or first not in self._seen:
            return [] if first is None else [first]
        if not self._space.is_small(LISTED):
            drawn = self._space.sample(self._generator, SAMPLED)
            new = [config for config in drawn if config not in self._seen]
            if new:
                return new
        left = [config for config in self._space if config not in self._seen]
        return [left[at] for at in self._generator.permutation(len(left))[:SAMPLED]]


def _distance(one: Config, other: Config) -> int:
    return sum(one.get(name) != other.get(name) for name in {*one, *other})

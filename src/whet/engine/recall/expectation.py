"""What is to be expected of configs that wait to be built: how fast they run, what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from whet.core.config import Config
from whet.core.space import Space

# Fewer outcomes than this say too little to change the strategy's order.
ENOUGH = 8

# The order is made anew when so many outcomes have come in since the last time.
EVERY = 4

# What a factor in build time counts against the same factor in kernel time.
BUILD_WEIGHT = 0.5

# Of 537 recorded builds on 4 machines, twice as long left some machines without work at the end,
# and with four times as long, what is expected to be good would no longer come first.
EARLY = 3.0

_RIDGE = 0.02

_Matrix = npt.NDArray[np.float64]


class Expectation:
    """Two ridge regressions on a space's own encoding: of the log of the time a kernel takes, and
    of the log of the time its build takes. The same outcomes give the same order.

    Kernel times are compared only with those of the same `where`: a workload of another key says
    which configs are quicker there, and not how quick they are here.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._rows: dict[str, _Matrix] = {}
        self._build_s: dict[str, float] = {}
        self._ns: dict[tuple[str, str], float] = {}
        self._known: dict[str, Config] = {}
        self._news = 0

    def built(self, config: Config, seconds: float) -> None:
        """A failure counts where it took the time that a success would have: not a refusal."""
        if seconds > 0:
            self._learn(config)
            self._build_s[config.id] = math.log(seconds)

    def timed(self, config: Config, ns: float, where: str = "") -> None:
        if ns > 0:
            self._learn(config)
            self._ns[where, config.id] = math.log(ns)

    def order(self, configs: Sequence[Config], at_once: int | None = None) -> list[Config] | None:
        """Best guess first; None while too little is known, or has been learnt since last time.

        With `at_once`, these are the last to be built, so many at the same time: long builds then
        come first where everybody would have to wait for them at the end."""
        if len(self._known) < ENOUGH or self._news < EVERY or not configs:
            return None
        self._news = 0
        self._encode([*self._known.values(), *configs])
        asked = _stacked(self._rows[config.id] for config in configs)
        build_weights = self._build_weights()
        scores = asked @ (self._time_weights() + BUILD_WEIGHT * build_weights)
        # Rounded, so that configs which are expected to be alike keep the order they came in.
        places = [int(at) for at in np.argsort(scores.round(9), kind="stable")]
        if at_once is not None and self._build_s:
            guessed = zip(configs, (asked @ build_weights).tolist(), strict=True)
            seconds = [math.exp(self._build_s.get(config.id, log)) for config, log in guessed]
            places = long_in_time(places, seconds, at_once)
        return [configs[at] for at in places]

    def _learn(self, config: Config) -> None:
        self._known[config.id] = config
        self._news += 1

    def _time_weights(self) -> _Matrix:
        logs: dict[str, list[float]] = {}
        for (where, _), log in self._ns.items():
            logs.setdefault(where, []).append(log)
        usual = {where: sum(some) / len(some) for where, some in logs.items()}
        relative = [log - usual[where] for (where, _), log in self._ns.items()]
        return self._fitted([id for _, id in self._ns], relative)

    def _build_weights(self) -> _Matrix:
        return self._fitted(list(self._build_s), list(self._build_s.values()))

    def _fitted(self, ids: Sequence[str], logs: Sequence[float]) -> _Matrix:
        width = next(iter(self._rows.values())).size
        if not ids:
            return np.zeros(width)
        rows = _stacked(self._rows[id] for id in ids)
        penalty = np.full(width, _RIDGE)
        penalty[0] = 1e-9  # the level itself is not held back
        weights: _Matrix = np.linalg.solve(
            rows.T @ rows + np.diag(penalty), rows.T @ np.asarray(logs)
        )
        return weights

    def _encode(self, configs: Sequence[Config]) -> None:
        """A one, each feature, and its square: tiles have a size that is best."""
        new = [config for config in configs if config.id not in self._rows]
        if new:
            features = self._space.encode(new) - 0.5
            rows = np.hstack([np.ones((len(new), 1)), features, features**2])
            self._rows.update((config.id, row) for config, row in zip(new, rows, strict=True))


def long_in_time(order: Sequence[int], seconds: Sequence[float], at_once: int) -> list[int]:
    """The order, except that the longest is begun once the rest, `at_once` at a time, will be done
    within `EARLY` times as long: short ones are then left to fill the gaps.

    `[0, 1, 2, 3]` that take 1, 1, 1 and 9 seconds, two at once, is `[3, 0, 1, 2]`.
    """
    left = dict.fromkeys(order)
    longest = sorted(order, key=lambda at: -seconds[at])
    work, found = sum(seconds[at] for at in order), []
    for long in longest:
        while left and long in left:
            chosen = long if EARLY * seconds[long] * at_once >= work else next(iter(left))
            del left[chosen]
            found.append(chosen)
            work -= seconds[chosen]
    return found


def _stacked(rows: Iterable[_Matrix]) -> _Matrix:
    return np.array(list(rows))

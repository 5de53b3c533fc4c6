"""Spaces with a known best, and how fast a strategy comes close to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from whet.core.config import Config
from whet.core.space import Categorical, Ordered, Permutation, Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.search import Strategy
from whet.search.unguided import Random
from whet.testing.strategy_kit import StrategyContract

Landscape = Callable[[Config], float]


def bowl_space() -> Space:
    """2,560 configs of three parameters with an order and two without."""
    return Space(
        {
            "x": list(range(16)),
            "y": [2**k for k in range(8)],
            "z": list(range(5)),
            "flag": [False, True],
            "layout": ["row", "col"],
        },
    )


def bowl(config: Config) -> float:
    """Slower the farther from x=11 y=16 z=3 flag=True layout=col, where it is 1 µs."""
    x, y, z = (float(config[name]) for name in "xyz")  # type: ignore[arg-type]
    away = abs(x - 11) / 15 + abs(math.log2(y) - 4) / 7 + abs(z - 3) / 4
    away += 0.3 * (config["flag"] is not True) + 0.3 * (config["layout"] != "col")
    return 1000.0 * (1 + away)


def orders_space() -> Space:
    return Space([Permutation("loops", "abcdef"), Ordered("tile", (1, 2, 4, 8)), _unroll()])


def _unroll() -> Categorical:
    return Categorical("unroll", (True, False))


def orders(config: Config) -> float:
    """Slower by each pair of loops that is not in the order f e d c b a."""
    loops = config["loops"]
    assert isinstance(loops, tuple)
    letters = [str(loop) for loop in loops]
    wrong = sum(a < b for at, a in enumerate(letters) for b in letters[at + 1 :])
    return 1000.0 * (1 + wrong / 5 + abs(float(config["tile"]) - 4) / 8)  # type: ignore[arg-type]


def wide_space() -> Space:
    """Too large to list: 10¹² combinations, and a constraint."""
    return Space({f"p{i}": list(range(10)) for i in range(12)}, ["p0 + p1 >= 3"])


def wide(config: Config) -> float:
    away = [abs(float(value) - 7) for value in config.values()]  # type: ignore[arg-type]
    return 1000.0 * (1 + sum(away) / len(away))


def run(
    strategy: Strategy,
    landscape: Landscape,
    evals: int,
    fails: Callable[[Config], bool] = lambda config: False,
) -> list[Config]:
    """Everything asked for, one at a time."""
    asked: list[Config] = []
    for _ in range(evals):
        (config,) = strategy.ask(1)
        asked.append(config)
        strategy.tell([outcome(config, landscape, fails(config))])
    return asked


def outcome(config: Config, landscape: Landscape, fails: bool = False) -> Trial:
    if fails:
        return Trial("workload", config, Status.RUN_ERROR, error="no such tile")
    return Trial("workload", config, Status.OK, Timing((landscape(config),), timer="fake"))


def mean_best(
    make: Callable[[Space, int], Strategy], space: Space, landscape: Landscape, evals: int
) -> float:
    """Over six seeds, relative to the optimum of 1 µs."""
    runs = [run(make(space, seed), landscape, evals) for seed in range(6)]
    return sum(min(map(landscape, asked)) for asked in runs) / len(runs) / 1000.0


class ClassicSearch(StrategyContract):
    """The contract, and what every search without a model must gain on chance."""

    def test_it_needs_far_fewer_evaluations_than_chance(self) -> None:
        assert mean_best(self.make, bowl_space(), bowl, 60) < 1.1
        assert mean_best(Random, bowl_space(), bowl, 60) > 1.15

    @pytest.mark.slow
    def test_it_learns_the_order_of_a_permutation(self) -> None:
        self._beats_chance(orders_space(), orders, 80, by=0.1)

    @pytest.mark.slow
    def test_it_progresses_where_the_space_cannot_be_listed(self) -> None:
        self._beats_chance(wide_space(), wide, 120, by=0.5)

    def _beats_chance(self, space: Space, ns: Landscape, evals: int, by: float) -> None:
        reached = mean_best(self.make, space, ns, evals)
        assert reached < mean_best(Random, space, ns, evals) - by


class Rated:
    """Knows the landscape beforehand, but for the configs it is told to know nothing of."""

    def __init__(self, landscape: Landscape, unknown: Callable[[Config], bool]) -> None:
        self._landscape = landscape
        self._unknown = unknown

    def scores(self, configs: Sequence[Config]) -> npt.NDArray[np.float64]:
        rated = (math.nan if self._unknown(one) else self._landscape(one) for one in configs)
        return np.log(np.array(list(rated)) / 1000.0)

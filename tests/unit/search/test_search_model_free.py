"""The strategies without a model: where they move, and what they gain on chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from whet.core.config import Config
from whet.core.space import Categorical, Ordered, Permutation, Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.search import Strategy
from whet.search.anneal import Anneal
from whet.search.coordinate import Coordinate
from whet.search.evolution import Evolution
from whet.search.genetic import Genetic
from whet.search.model_free import (
    Axis,
    Codes,
    ConfigPool,
    Encoding,
    ListedPool,
    SampledPool,
    pool_of,
)
from whet.search.unguided import Random

Landscape = Callable[[Config], float]
Make = Callable[[Space, int], Strategy]


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
    unroll = Categorical("unroll", (True, False))
    return Space([Permutation("loops", "abcdef"), Ordered("tile", (1, 2, 4, 8)), unroll])


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


def mean_best(make: Make, space: Space, landscape: Landscape, evals: int) -> float:
    """Over six seeds, relative to the optimum of 1 µs."""
    runs = [run(make(space, seed), landscape, evals) for seed in range(6)]
    return sum(min(map(landscape, asked)) for asked in runs) / len(runs) / 1000.0


class Rated:
    """Knows the landscape beforehand, but for the configs it is told to know nothing of."""

    def __init__(self, landscape: Landscape, unknown: Callable[[Config], bool]) -> None:
        self._landscape = landscape
        self._unknown = unknown

    def scores(self, configs: Sequence[Config]) -> npt.NDArray[np.float64]:
        rated = (math.nan if self._unknown(one) else self._landscape(one) for one in configs)
        return np.log(np.array(list(rated)) / 1000.0)


CLASSIC = [Anneal, Evolution, Genetic, pytest.param(Coordinate, marks=pytest.mark.medium)]


@pytest.mark.parametrize("make", CLASSIC)
class TestAgainstChance:
    def test_it_needs_far_fewer_evaluations(self, make: Make) -> None:
        evals = 40 if make is Coordinate else 60
        assert mean_best(make, bowl_space(), bowl, evals) < 1.1
        assert mean_best(Random, bowl_space(), bowl, evals) > 1.15

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("space", "landscape", "evals", "by"),
        [(orders_space(), orders, 80, 0.1), (wide_space(), wide, 120, 0.5)],
        ids=["permutation", "not listed"],
    )
    def test_it_progresses(
        self, make: Make, space: Space, landscape: Landscape, evals: int, by: float
    ) -> None:
        reached = mean_best(make, space, landscape, evals)
        assert reached < mean_best(Random, space, landscape, evals) - by


@pytest.mark.medium
@pytest.mark.parametrize(
    ("make", "name", "failing"), [(Evolution, "layout", "col"), (Genetic, "flag", True)]
)
def test_it_keeps_away_from_where_configs_fail(make: Make, name: str, failing: Any) -> None:
    def fails(config: Config) -> bool:
        return config[name] == failing

    asked = run(make(bowl_space(), 0), bowl, 80, fails)
    assert sum(map(fails, asked[40:])) < 10


BEST = Config(x=11, y=16, z=3, flag=True, layout="col")


@pytest.mark.medium
def test_it_starts_with_the_authors_first_config() -> None:
    space = bowl_space()
    assert Coordinate(space, 3).ask(1) == [space.first]


@pytest.mark.medium
def test_what_another_workload_found_best_is_tried_next() -> None:
    prior = Rated(bowl, unknown=lambda config: config["x"] == 11)
    strategy = Coordinate(bowl_space(), 3, transfer=prior)
    second = strategy.ask(2)[1]
    assert bowl(second) == min(bowl(one) for one in bowl_space() if one["x"] != 11)


@pytest.mark.medium
def test_it_descends_to_the_bottom_of_a_bowl() -> None:
    for seed in range(5):
        assert BEST in run(Coordinate(bowl_space(), seed), bowl, 80)


@pytest.mark.medium
def test_the_best_is_polished_in_every_parameter_before_it_moves_on() -> None:
    space = bowl_space()
    asked = run(Coordinate(space, 0), bowl, 100)
    found = asked.index(BEST) + 1
    polish = set(space.neighbours(BEST)) - set(asked[:found])
    assert len(polish) > 1
    assert set(asked[found : found + len(polish)]) == polish


def test_no_search_is_so_long_that_it_explores_for_the_sake_of_it() -> None:
    assert Coordinate.explore_every > 1e9


@pytest.mark.medium
def test_a_batch_has_neighbours_of_more_than_one_config() -> None:
    strategy = Coordinate(bowl_space(), 0)
    asked = run(strategy, bowl, 30)
    best = min(asked, key=bowl)
    around = [sum(one[name] != best[name] for name in one) == 1 for one in strategy.ask(8)]
    assert any(around)
    assert not all(around)


@pytest.mark.medium
def test_it_goes_on_before_it_is_told() -> None:
    strategy = Coordinate(bowl_space(), 0)
    waiting = strategy.ask(4)
    for _ in range(30):
        waiting += strategy.ask(1)
        strategy.tell([outcome(waiting.pop(0), bowl)])
    assert min(bowl(one) for one in strategy.ask(4)) < 1500


@pytest.mark.medium
def test_a_flat_landscape_ends_in_restarts_and_not_in_one_place() -> None:
    asked = run(Anneal(bowl_space(), 0), lambda config: 1000.0, 120)
    assert {config["x"] for config in asked} == set(range(16))


@pytest.mark.medium
def test_too_few_successes_to_differ_leave_it_searching() -> None:
    survivors = list(bowl_space())[::700]
    asked = run(Evolution(bowl_space(), 0), bowl, 60, lambda config: config not in survivors)
    assert len(set(asked)) == 60


def test_children_that_break_a_constraint_are_brought_to_the_nearest_that_does_not() -> None:
    space = Space({"a": list(range(32)), "b": list(range(32))}, ["(a + b) % 7 == 0"])
    asked = run(Genetic(space, 0), lambda config: 1000.0 + float(config["a"]), 60)  # type: ignore[arg-type]
    assert all(config in space for config in asked)
    assert 0 in [config["a"] for config in asked]


class TestAnnealing:
    def walk(self, told: int) -> Anneal:
        strategy = Anneal(Space({"a": list(range(200))}), 0)
        strategy.tell([outcome(Config(a=row), lambda config: 100.0) for row in range(told)])
        return strategy

    def test_it_cools_by_a_twenty_fifth_from_outcome_to_outcome(self) -> None:
        """From 0.3, and not below 0.01."""
        temperatures = [self.walk(told)._temperature for told in (0, 1, 10, 200)]
        assert temperatures == pytest.approx([0.3, 0.288, 0.3 * 0.96**10, 0.01])

    @pytest.mark.parametrize(("slower", "told"), [(0.1, 1), (0.3, 1), (0.1, 20)])
    def test_what_is_slower_is_accepted_by_boltzmanns_chance(
        self, slower: float, told: int
    ) -> None:
        strategy = self.walk(told)
        score = math.log(100.0) + slower
        accepted = sum(strategy._accepts(score) for _ in range(4000)) / 4000
        chance = math.exp(-slower / (0.3 * 0.96**told))
        assert accepted == pytest.approx(chance, abs=0.03)
        assert strategy._accepts(math.log(100.0))
        assert not strategy._accepts(math.inf)


SPACE = Space({"a": [1, 2, 4, 8], "b": [0, 1, 2, 3], "c": ["x", "y", "z"]}, ["a > b"])


@pytest.fixture(params=[ListedPool, SampledPool])
def pool(request: pytest.FixtureRequest) -> ConfigPool:
    make: Callable[[Space], ConfigPool] = request.param
    return make(SPACE)


def codes(pool: ConfigPool, **values: object) -> Codes:
    found = pool.encoding.codes(Config(values))
    assert found is not None
    return found


def test_small_spaces_are_listed_and_large_ones_are_not() -> None:
    assert isinstance(pool_of(SPACE), ListedPool)
    assert isinstance(pool_of(Space({f"p{i}": list(range(9)) for i in range(9)})), SampledPool)


class TestPool:
    def test_neighbours_are_one_step_along_an_order_or_any_other_category(
        self, pool: ConfigPool
    ) -> None:
        around = pool.neighbours(codes(pool, a=4, b=1, c="x"))
        assert {str(pool.config(one)) for one in around} == {
            "a=2 b=1 c=x",
            "a=8 b=1 c=x",
            "a=4 b=0 c=x",
            "a=4 b=2 c=x",
            "a=4 b=1 c=y",
            "a=4 b=1 c=z",
        }

    def test_what_is_taken_is_no_neighbour_and_not_the_nearest(self, pool: ConfigPool) -> None:
        here, there = codes(pool, a=4, b=1, c="x"), codes(pool, a=4, b=2, c="x")
        pool.take(here)
        pool.take(there)
        assert there not in pool.neighbours(here)
        point = pool.encoding.points([there])[0]
        assert pool.nearest(point, here, np.random.default_rng(0)) not in (here, there, None)

    def test_the_nearest_to_a_free_config_is_itself(self, pool: ConfigPool) -> None:
        here, there = codes(pool, a=1, b=0, c="x"), codes(pool, a=8, b=3, c="z")
        point = pool.encoding.points([there])[0]
        assert pool.nearest(point, here, np.random.default_rng(0)) == there

    def test_the_nearest_to_an_invalid_point_is_valid(self, pool: ConfigPool) -> None:
        here = codes(pool, a=8, b=0, c="y")
        pool.take(here)
        invalid = pool.encoding.points([codes(pool, a=1, b=3, c="y")])[0]
        found = pool.nearest(invalid, here, np.random.default_rng(0))
        assert found is not None
        assert pool.config(found) in SPACE

    def test_draws_are_free_and_end_when_all_are_taken(self, pool: ConfigPool) -> None:
        rng = np.random.default_rng(0)
        drawn: list[Codes] = []
        while some := pool.draw(rng, 5):
            for one in some:
                pool.take(one)
            drawn += some
        assert {pool.config(one) for one in drawn} == set(SPACE)
        assert len(drawn) == len(SPACE)


class TestListed:
    def test_a_neighbour_is_found_beyond_values_that_are_not_valid(self) -> None:
        space = Space({"a": [1, 2, 3, 4], "b": [1, 2]}, ["a % 3 == 1"])
        pool = ListedPool(space)
        around = pool.neighbours(codes(pool, a=1, b=1))
        assert {str(pool.config(one)) for one in around} == {"a=4 b=1", "a=1 b=2"}

    def test_neighbours_of_a_permutation_are_its_swaps(self) -> None:
        pool = ListedPool(Space([Permutation("loops", "abcd"), Ordered("tile", (1, 2))]))
        around = pool.neighbours(codes(pool, loops=tuple("abcd"), tile=1))
        assert len([one for one in around if pool.config(one)["tile"] == 1]) == 6
        assert codes(pool, loops=tuple("abdc"), tile=1) in around
        assert codes(pool, loops=tuple("abcd"), tile=2) in around

    def test_a_config_without_a_parameter_is_a_place_of_its_own(self) -> None:
        space = Space([{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}])
        pool = ListedPool(space)
        alone = codes(pool, a=1)
        around = pool.neighbours(codes(pool, a=1, b=1))
        assert pool.config(alone) == Config(a=1)
        assert set(around) == {alone, codes(pool, a=1, b=2)}


class TestEncoding:
    def test_strangers_have_no_codes(self) -> None:
        encoding = Encoding(Space({"a": [1, 2], "fixed": [7]}))
        assert encoding.codes(Config(a=1, fixed=7)) == (0,)
        assert encoding.codes(Config(a=3, fixed=7)) is None
        assert encoding.codes(Config(a=1, fixed=8)) is None
        assert encoding.codes(Config(a=1)) is None

    def test_the_most_different_values_of_a_parameter_are_one_apart(self) -> None:
        for parameter in (
            Ordered("p", (1, 2, 64)),
            Categorical("p", ("x", "y", "z")),
            Permutation("p", "abc"),
        ):
            table = Axis(parameter, optional=False).table
            apart = np.abs(table[:, None] - table[None]).sum(axis=2)
            assert apart.max() == pytest.approx(1.0, abs=1e-5)


class TestAxis:
    def test_steps_go_along_the_order_and_stop_at_its_ends(self) -> None:
        axis = Axis(Ordered("p", (8, 1, 4, 2)), optional=False)
        rng = np.random.default_rng(0)
        values = axis.parameter.values
        assert {values[axis.moved(3, 1, rng)] for _ in range(50)} == {1, 4}
        assert {values[axis.moved(3, 9, rng)] for _ in range(50)} == {1, 8}

    def test_one_step_of_a_permutation_is_one_swap(self) -> None:
        axis = Axis(Permutation("p", "abcd"), optional=False)
        moved = axis.parameter.values[axis.moved(0, 1, np.random.default_rng(1))]
        assert isinstance(moved, tuple)
        assert sum(a != b for a, b in zip(moved, "abcd", strict=True)) == 2

    def test_an_absent_parameter_is_a_code_of_its_own(self) -> None:
        axis = Axis(Space({"p": [1, 2, 4]}).parameters[0], optional=True)
        rng = np.random.default_rng(0)
        assert {axis.moved(3, 1, rng) for _ in range(60)} == {0, 1, 2}
        moved = [axis.moved(1, 1, rng) for _ in range(2000)]
        assert moved.count(3) / 2000 == pytest.approx(1 / 4, abs=0.04)
        assert moved.count(0) / 2000 == pytest.approx(3 / 8, abs=0.05)
        assert axis.beside(0, 3) == axis.beside(3, 0) == 0
        assert (axis.beside(0, 2), axis.beside(2, 1)) == (1, -1)

    def test_an_absent_parameter_lies_half_away_from_the_nearest(self) -> None:
        axis = Axis(Space({"p": [0, 1, 2]}).parameters[0], optional=True)
        assert axis.table.tolist() == [[0.0, 0.5], [0.5, 0.5], [1.0, 0.5], [0.0, 0.0]]

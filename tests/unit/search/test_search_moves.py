"""The pool strategies move on: neighbours, the nearest free config, draws; listed or not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from whet.core.config import Config
from whet.core.space import Categorical, Ordered, Permutation, Space
from whet.search.model_free import (
    Axis,
    Codes,
    ConfigPool,
    Encoding,
    ListedPool,
    SampledPool,
    pool_of,
)

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


class TestGround:
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


class TestChart:
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

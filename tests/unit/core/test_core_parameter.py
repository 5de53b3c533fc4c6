import pickle
from typing import Any

import numpy as np
import pytest

from whet.core.errors import SpaceError
from whet.core.space import Categorical, Ordered, Permutation, infer


class TestOrdered:
    def test_neighbours_are_the_next_smaller_and_the_next_larger(self) -> None:
        tile = Ordered("BM", [64, 16, 128, 32])
        assert tile.neighbours(32) == (16, 64)
        assert tile.neighbours(16) == (32,)
        assert tile.neighbours(128) == (64,)

    def test_values_keep_the_authors_order(self) -> None:
        assert Ordered("BM", [64, 16, 32]).values == (64, 16, 32)

    def test_a_wide_positive_range_is_encoded_on_a_log_scale(self) -> None:
        tile = Ordered("BM", [16, 32, 64, 128, 256])
        assert [tile.encode(value) for value in tile.values] == [
            (0.0,),
            (0.25,),
            (0.5,),
            (0.75,),
            (1.0,),
        ]

    def test_a_narrow_range_is_encoded_linearly(self) -> None:
        assert Ordered("n", [1, 2, 5]).encode(2) == (0.25,)

    def test_a_range_with_zero_is_encoded_linearly(self) -> None:
        assert Ordered("n", [0, 25, 100]).encode(25) == (0.25,)

    def test_a_single_value_is_encoded_as_zero(self) -> None:
        assert Ordered("n", [7]).encode(7) == (0.0,)

    def test_text_is_ordered_as_listed(self) -> None:
        level = Ordered("opt", ["O0", "O1", "O2"])
        assert level.neighbours("O1") == ("O0", "O2")
        assert level.encode("O1") == (0.5,)


class TestCategorical:
    def test_every_other_value_is_a_neighbour(self) -> None:
        assert Categorical("layout", ["row", "col", "tiled"]).neighbours("col") == ("row", "tiled")

    def test_is_encoded_one_hot(self) -> None:
        layout = Categorical("layout", ["row", "col"])
        assert layout.encode("col") == (0.0, 1.0)
        assert layout.columns == ("layout=row", "layout=col")
        assert layout.width == 2

    def test_columns_tell_a_number_from_its_text(self) -> None:
        assert Categorical("a", [1, "1"]).columns == ("a=1", "a='1'")


class TestPermutation:
    def test_values_are_all_orders_with_the_given_one_first(self) -> None:
        loops = Permutation("loops", "mnk")
        assert len(loops.values) == 6
        assert loops.values[0] == ("m", "n", "k")

    def test_a_neighbour_swaps_two_positions(self) -> None:
        assert set(Permutation("loops", "mnk").neighbours(("m", "n", "k"))) == {
            ("n", "m", "k"),
            ("k", "n", "m"),
            ("m", "k", "n"),
        }

    def test_is_encoded_by_the_position_of_each_item(self) -> None:
        loops = Permutation("loops", "mnk")
        assert loops.encode(("k", "m", "n")) == (0.5, 1.0, 0.0)
        assert loops.columns == ("loops[m]", "loops[n]", "loops[k]")

    def test_more_than_eight_items_are_refused_with_a_remedy(self) -> None:
        with pytest.raises(SpaceError, match=r"'loops' permutes 9 items.*Categorical"):
            Permutation("loops", range(9))


class TestInfer:
    @pytest.mark.parametrize("values", [[1, 2], [0.5, 2], range(3), np.array([1, 2, 4])])
    def test_numbers_are_ordered(self, values: object) -> None:
        assert isinstance(infer("a", values), Ordered)

    @pytest.mark.parametrize("values", [[True, False], ["x"], [None, 1], [1, True], [(1, 2)]])
    def test_anything_else_is_categorical(self, values: object) -> None:
        assert isinstance(infer("a", values), Categorical)

    @pytest.mark.parametrize("scalar", [5, "row", None, 2.5, {"x": 1}])
    def test_one_value_instead_of_a_list_is_refused(self, scalar: object) -> None:
        with pytest.raises(SpaceError, match=r"parameter 'a' is .*give a list of values"):
            infer("a", scalar)

    @pytest.mark.parametrize("kind", [infer, Ordered, Categorical])
    def test_no_values_make_a_parameter_that_offers_nothing(self, kind: Any) -> None:
        parameter = kind("a", [])
        assert parameter.values == ()
        assert not parameter.offers(1)

    def test_a_set_is_refused_for_it_has_no_order(self) -> None:
        with pytest.raises(SpaceError, match="parameter 'a' is a set"):
            infer("a", {1, 2})

    def test_a_duplicate_is_named(self) -> None:
        with pytest.raises(SpaceError, match="parameter 'a' lists 4 twice"):
            infer("a", [1, 4, 2, 4])

    def test_one_and_one_point_zero_and_true_are_three_values(self) -> None:
        assert len(infer("a", [1, 1.0, True]).values) == 3

    @pytest.mark.parametrize("name", ["", 3])
    def test_a_parameter_needs_a_name(self, name: object) -> None:
        with pytest.raises(SpaceError, match="name must be a string"):
            infer(name, [1])  # type: ignore[arg-type]


def test_a_value_that_is_not_offered_is_refused_with_those_that_are() -> None:
    with pytest.raises(SpaceError, match="a=3 is not a possible value; valid: 1, 2, 4"):
        Ordered("a", [1, 2, 4]).neighbours(3)


def test_equality_tells_values_and_kinds_apart() -> None:
    assert Ordered("a", [1, 2]) == Ordered("a", (1, 2))
    assert Ordered("a", [1, 2]) != Categorical("a", [1, 2])
    assert Categorical("a", [1, 2]) != Categorical("a", [True, 2])
    assert Categorical("a", [1, 2]) != Categorical("a", [2, 1])


def test_parameters_survive_pickling() -> None:
    for parameter in (Ordered("a", [1, 2]), Categorical("b", ["x"]), Permutation("c", "mn")):
        assert pickle.loads(pickle.dumps(parameter)) == parameter

"""Configs as numbers, and what follows from them."""

from __future__ import annotations

import math

import pytest

from whet.core.config import Config
from whet.core.space import Categorical, Ordered, Permutation, Space
from whet.learn.features import Codebook, Features, Points, related


def features(space: Space, *, products: bool = True) -> tuple[Features, Points]:
    book = Codebook(space)
    codes = book.codes(list(space))
    made = Features(book, codes, products=products)
    return made, made.of(codes)


class TestCodebook:
    def test_a_config_comes_back_from_its_codes(self) -> None:
        space = Space(
            [Ordered("a", (1, 2)), Categorical("b", (True, 1, "x")), Permutation("c", "mnk")]
        )
        book = Codebook(space)
        for config, codes in zip(space, book.codes(list(space)), strict=True):
            assert book.config(codes.tolist()) == config

    def test_a_parameter_without_a_choice_takes_no_column(self) -> None:
        book = Codebook(Space({"a": [1, 2], "only": [7]}))
        assert book.codes([Config(a=2, only=7)]).tolist() == [[1]]
        assert book.config([1]) == Config(a=2, only=7)

    def test_a_parameter_some_configs_do_without_is_kept_apart(self) -> None:
        space = Space([{"a": 1, "b": 3}, {"a": 2}])
        book = Codebook(space)
        assert [book.config(row) for row in book.codes(list(space)).tolist()] == list(space)

    def test_the_codes_of_several_are_rows(self) -> None:
        book = Codebook(Space({"a": [1, 2], "b": [5, 6, 7]}))
        assert book.codes([Config(a=2, b=7), Config(a=1, b=6)]).tolist() == [[1, 2], [0, 1]]
        assert book.codes([]).shape == (0, 2)

    def test_a_parameter_that_is_missing_has_the_place_past_its_values(self) -> None:
        book = Codebook(Space([{"a": 1, "b": 3}, {"a": 2}]))
        assert book.codes([Config(a=1, b=3), Config(a=2)]).tolist() == [[0, 0], [1, 1]]
        assert book.optional == (False, True)

    def test_a_stranger_has_no_code(self) -> None:
        book = Codebook(Space({"a": [1, 2], "only": [7]}))
        assert book.code(Config(a=3, only=7)) is None
        assert book.code(Config(a=1, only=8)) is None
        assert book.code(Config(a=1)) is None


class TestFeatures:
    def test_every_column_lies_between_0_and_1_and_varies(self) -> None:
        _, points = features(Space({"bx": [16, 48, 256], "by": [1, 2, 3], "on": [0, 1]}))
        assert points.min(axis=0).tolist() == [0.0] * points.shape[1]
        assert points.max(axis=0).tolist() == [1.0] * points.shape[1]

    def test_numbers_that_belong_together_are_multiplied(self) -> None:
        made, points = features(Space({"tile_x": [1, 2, 4], "tile_y": [1, 2, 4]}))
        product = points[:, made.names.index("tile_x·tile_y")].reshape(3, 3)
        assert product[0, 2] == product[1, 1] == product[2, 0] == 0.5

    def test_products_can_be_left_out(self) -> None:
        made, _ = features(Space({"BM": [1, 2, 4], "BN": [1, 2, 4]}), products=False)
        assert made.names == ("BM", "BN")

    def test_how_often_two_divides_a_number_is_told_where_it_says_something_new(self) -> None:
        made, points = features(Space({"a": [32, 48, 80, 64], "b": [1, 2, 4]}), products=False)
        assert made.names == ("a", "b", "a twos")
        assert points[::3, 2].tolist() == [0.5, 0.0, 0.0, 1.0]

    def test_a_parameter_that_is_missing_is_a_column_of_its_own(self) -> None:
        made, points = features(Space([{"a": 4, "b": 1}, {"a": 2, "b": 1}, {"b": 2}]))
        assert made.names == ("a", "a?", "b")
        assert points.tolist() == [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        assert made.plain == 3

    def test_products_are_sums_of_logs(self) -> None:
        made, points = features(Space({"BM": [1, 4, 16], "BN": [1, 2, 8], "c": [2, 4, 8, 32]}))
        assert made.names[3:] == ("BM·BN", "product")
        assert made.plain == 3
        logs = [math.log2(a * b) / 7 for a in (1, 4, 16) for b in (1, 2, 8) for _ in range(4)]
        assert points[:, 3] == pytest.approx(logs)
        assert points[0, 4] == 0.0
        assert points[5, 4] == pytest.approx((1 + 2 - 1) / (4 + 3 + 5 - 1))

    def test_switches_and_numbers_that_are_not_positive_have_no_products(self) -> None:
        made, _ = features(Space({"BM": [1, 2], "BN": [0, 1, 2], "BK": [True, False], "B": [1.5]}))
        assert "product" not in made.names
        assert not any("·" in name for name in made.names)

    def test_no_configs_give_no_columns(self) -> None:
        book = Codebook(Space({"a": [1, 2, 3]}))
        made = Features(book, book.codes([]))
        assert made.names == ()
        assert made.of(book.codes([Config(a=1)])).shape == (1, 0)

    def test_later_configs_are_scaled_as_the_first_ones_were(self) -> None:
        book = Codebook(Space({"a": [0, 1, 2]}))
        made = Features(book, book.codes([Config(a=0), Config(a=1)]))
        assert made.of(book.codes([Config(a=2)])).tolist() == [[2.0]]


def test_names_are_related_by_how_they_begin_or_end() -> None:
    assert related("block_size_x", "block_size_y")
    assert related("block_size_x", "tile_size_x")
    assert related("BM", "BK")
    assert not related("block_size_x", "tile_size_y")
    assert not related("num_warps", "num_stages")
    assert not related("x", "tile_x")
    assert not related("tile_x", "_x")
    assert not related("tile_ab", "block_ab")
    assert not related("a", "b")

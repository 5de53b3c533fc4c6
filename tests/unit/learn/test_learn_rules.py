"""What is thought of a config before anything is measured."""

from __future__ import annotations

import math

import pytest

from whet.core.config import Config
from whet.core.space import Space
from whet.learn.features import Codebook
from whet.learn.prior import Rules


def slower(space: Space, **config: int) -> float:
    book = Codebook(space)
    return float(Rules(book).of(book.codes([Config(config)]))[0])


BLOCKS = Space({"block_size_x": [32, 48, 64, 96, 128], "block_size_y": [1, 2, 4, 8]})


def test_a_usual_number_of_threads_in_powers_of_two_is_without_fault() -> None:
    assert slower(BLOCKS, block_size_x=32, block_size_y=4) == 0
    assert slower(BLOCKS, block_size_x=128, block_size_y=1) == 0


def test_an_odd_multiple_is_thought_slower_than_the_round_numbers_around_it() -> None:
    space = Space({"tile": [64, 96, 128]})
    assert slower(space, tile=64) == slower(space, tile=128) == 0 < slower(space, tile=96)


def test_numbers_below_the_width_of_a_warp_may_be_anything() -> None:
    assert Rules(Codebook(Space({"unroll": [1, 3, 5, 20]}))).silent


def test_where_warps_are_counted_block_sizes_are_not_threads() -> None:
    space = Space({"num_warps": [2, 4, 8], "BLOCK_SIZE_X": [32, 64, 128]})
    assert slower(space, num_warps=4, BLOCK_SIZE_X=128) == 0
    assert slower(space, num_warps=8, BLOCK_SIZE_X=32) > 0


def test_names_and_switches_are_of_no_interest() -> None:
    assert Rules(Codebook(Space({"layout": ["row", "col"], "pad": [True, False]}))).silent


def test_each_doubling_of_the_odd_part_is_a_tenth_slower() -> None:
    space = Space({"tile": [64, 96, 160]})
    assert slower(space, tile=96) == pytest.approx(0.1 * math.log2(3))
    assert slower(space, tile=160) == pytest.approx(0.1 * math.log2(5))


def test_doublings_away_from_128_threads_count_by_their_square() -> None:
    assert slower(BLOCKS, block_size_x=128, block_size_y=8) == pytest.approx(0.05 * 3**2)
    assert slower(BLOCKS, block_size_x=32, block_size_y=1) == pytest.approx(0.05 * 2**2)
    warps = Space({"num_warps": [1, 4, 16]})
    assert slower(warps, num_warps=16) == slower(warps, num_warps=1) == pytest.approx(0.2)


def test_a_size_of_a_warp_is_wide_enough_to_be_judged() -> None:
    space = Space({"tile": [24, 32]})
    assert slower(space, tile=24) == pytest.approx(0.1 * math.log2(3))


def test_sizes_that_are_no_whole_numbers_or_not_positive_are_of_no_interest() -> None:
    assert Rules(Codebook(Space({"tile": [32.0, 48.5, 64.0]}))).silent
    assert Rules(Codebook(Space({"threads": [0, 64, 128]}))).silent


def test_either_rule_alone_is_an_opinion() -> None:
    assert not Rules(Codebook(Space({"threads": [2, 4]}))).silent
    assert not Rules(Codebook(Space({"tile": [64, 96]}))).silent


def test_a_config_without_a_size_is_without_fault_in_it() -> None:
    space = Space([{"tile": 96, "a": 1}, {"tile": 64, "a": 2}, {"a": 1}])
    assert slower(space, a=1) == 0

"""What is thought of a config before anything is measured."""

from __future__ import annotations

from whet.core.config import Config
from whet.core.space import Space
from whet.learn.features import Codebook
from whet.learn.rules import UNROUND, Rules


def slower(space: Space, **config: int) -> float:
    book = Codebook(space)
    return float(Rules(book).of(book.codes([Config(config)]))[0])


BLOCKS = Space({"block_size_x": [32, 48, 64, 96, 128], "block_size_y": [1, 2, 4, 8]})


def test_a_usual_number_of_threads_in_powers_of_two_is_without_fault() -> None:
    assert slower(BLOCKS, block_size_x=32, block_size_y=4) == 0
    assert slower(BLOCKS, block_size_x=128, block_size_y=1) == 0


def test_far_too_many_threads_are_thought_slow() -> None:
    assert slower(BLOCKS, block_size_x=128, block_size_y=8) > slower(
        BLOCKS, block_size_x=128, block_size_y=2
    )


def test_an_odd_multiple_is_thought_slower_than_the_round_numbers_around_it() -> None:
    space = Space({"tile": [64, 96, 128]})
    assert slower(space, tile=64) == slower(space, tile=128) == 0
    assert UNROUND < slower(space, tile=96) < 2 * UNROUND


def test_numbers_below_the_width_of_a_warp_may_be_anything() -> None:
    assert Rules(Codebook(Space({"unroll": [1, 3, 5, 20]}))).silent


def test_where_warps_are_counted_block_sizes_are_not_threads() -> None:
    space = Space({"num_warps": [2, 4, 8], "BLOCK_SIZE_X": [32, 64, 128]})
    assert slower(space, num_warps=4, BLOCK_SIZE_X=128) == 0
    assert slower(space, num_warps=8, BLOCK_SIZE_X=32) > 0


def test_names_and_switches_are_of_no_interest() -> None:
    assert Rules(Codebook(Space({"layout": ["row", "col"], "pad": [True, False]}))).silent

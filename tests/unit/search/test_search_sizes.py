"""Sizes tuned one after another."""

from __future__ import annotations

import math

from whet.core.config import Config
from whet.core.space import Space
from whet.search.sizes import fractions, recorded, tune_in_sequence

SPACE = Space({"tile": [16, 32, 64, 128, 256], "stages": [1, 2, 3, 4], "warps": [2, 4, 8]})
SIZES = [(2**k,) for k in (8, 11, 9, 12, 10)]


def tables() -> dict[tuple[int, ...], dict[Config, float]]:
    """The best tile grows with the size; four stages fail."""

    def ns(size: int, config: Config) -> float:
        tile, stages, warps = (int(str(config[name])) for name in ("tile", "stages", "warps"))
        far = abs(math.log2(tile) - math.log2(size) / 2) + 0.3 * abs(stages - 3)
        return size * (1 + far + 0.1 * abs(warps - 4))

    return {
        (size,): {config: ns(size, config) for config in SPACE if config["stages"] != 4}
        for (size,) in SIZES
    }


def test_what_was_learned_at_other_sizes_makes_a_few_evaluations_enough() -> None:
    keys, measure = recorded(tables(), ["n"])
    done = tune_in_sequence(SPACE, keys, measure, first=3, evals=4)
    assert [len(trials) for trials in done] == [60, 60, 60, 4, 4]
    assert min(fractions(tables(), done)[3:]) > 0.9


def test_configs_that_fail_everywhere_are_not_tried_again() -> None:
    keys, measure = recorded(tables(), ["n"])
    done = tune_in_sequence(SPACE, keys, measure, first=2, evals=5)
    assert all(trial.status.measured for trials in done[2:] for trial in trials)


def test_the_first_sizes_may_be_searched_instead_of_measured_whole() -> None:
    keys, measure = recorded(tables(), ["n"])
    done = tune_in_sequence(SPACE, keys, measure, first=2, first_evals=20, evals=5, search="gp")
    assert [len(trials) for trials in done] == [20, 20, 5, 5, 5]
    assert all(len({trial.config for trial in trials}) == len(trials) for trials in done)


def test_a_size_where_nothing_worked_reached_nothing() -> None:
    assert fractions({(1,): {Config(tile=16): 5.0}}, [[]]) == [0.0]

"""What is expected of configs that wait to be built."""

from __future__ import annotations

import math
from typing import Any

from whet.core.config import Config
from whet.core.space import Space
from whet.engine.steps.build import FEWEST_OUTCOMES, Expectation, long_in_time

SPACE = Space({"BM": [16, 32, 64, 128, 256], "BN": [16, 32, 64, 128, 256], "warps": [2, 4, 8]})
CONFIGS = list(SPACE)


def kernel_ns(config: Any) -> float:
    """Best at a tile of 64 × 128."""
    away = math.log2(config["BM"] / 64) ** 2 + math.log2(config["BN"] / 128) ** 2
    return float(10_000.0 * 1.3**away)


def build_s(config: Any) -> float:
    return float(1e-4 * config["BM"] * config["BN"] / config["warps"])


def taught(configs: list[Config]) -> Expectation:
    expected = Expectation(SPACE)
    for config in configs:
        expected.timed(config, kernel_ns(config))
        expected.built(config, build_s(config))
    return expected


def place(order: list[Config] | None, config: Config) -> int:
    assert order is not None
    return order.index(config)


def test_with_few_outcomes_the_strategys_order_stays() -> None:
    assert taught(CONFIGS[: FEWEST_OUTCOMES - 1]).order(CONFIGS) is None


def test_what_is_expected_to_run_fast_comes_first() -> None:
    expected = Expectation(SPACE)
    for config in CONFIGS[::4]:
        expected.timed(config, kernel_ns(config))
    order = expected.order(CONFIGS)
    assert place(order, Config(BM=64, BN=128, warps=4)) < 8
    assert place(order, Config(BM=256, BN=16, warps=4)) > 60


def test_of_two_that_run_alike_the_cheaper_build_comes_first() -> None:
    order = taught(CONFIGS[::4]).order(CONFIGS)
    assert place(order, Config(BM=64, BN=128, warps=8)) < place(
        order, Config(BM=64, BN=128, warps=2)
    )


def test_another_keys_times_count_for_their_order_and_not_for_their_level() -> None:
    """There everything is a thousand times slower; here only slow configs were seen so far."""
    expected = Expectation(SPACE)
    for config in CONFIGS[::4]:
        expected.timed(config, 1000 * kernel_ns(config), where="a larger problem")
    for config in CONFIGS[1:4]:
        expected.timed(config, kernel_ns(config))
    assert place(expected.order(CONFIGS), Config(BM=64, BN=128, warps=4)) < 8


def test_the_same_outcomes_give_the_same_order() -> None:
    assert taught(CONFIGS[::3]).order(CONFIGS) == taught(CONFIGS[::3]).order(CONFIGS)


def test_without_news_the_order_is_not_made_again() -> None:
    expected = taught(CONFIGS[::4])
    assert expected.order(CONFIGS) is not None
    expected.timed(CONFIGS[1], kernel_ns(CONFIGS[1]))
    assert expected.order(CONFIGS) is None


def test_configs_that_are_expected_to_be_alike_keep_their_order() -> None:
    expected = Expectation(SPACE)
    for config in CONFIGS[::2]:
        expected.timed(config, 1000.0)
    assert expected.order(CONFIGS) == CONFIGS


def test_a_build_that_all_would_wait_for_at_the_end_is_begun_in_time() -> None:
    seconds = [1.0] * 20 + [9.0]
    assert long_in_time(range(21), seconds, 8)[0] == 20
    assert long_in_time(range(21), seconds, 1).index(20) == 2  # 27 s are left then, 3 times its own
    assert sorted(long_in_time(range(21), seconds, 8)) == list(range(21))


def test_over_several_machines_the_long_builds_do_not_come_last() -> None:
    some, rest = CONFIGS[::4], [config for config in CONFIGS if config not in CONFIGS[::4]]
    longest = max(rest, key=build_s)
    assert place(taught(some).order(rest), longest) > len(rest) // 2
    assert place(taught(some).order(rest, at_once=16), longest) < len(rest) // 4

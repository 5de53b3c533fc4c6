"""Which of two is faster by all evidence: against SciPy, closed forms and made-up devices."""

from __future__ import annotations

import math
import random

import pytest
from scipy.stats import t

from whet.measure import Race
from whet.measure.racing.estimate import Looks, estimated, t_chance, usual


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 30, 100])
def test_chances_are_students(degrees: int) -> None:
    for value in (-6.0, -1.0, 0.0, 0.3, 0.6745, 2.0, 9.0):
        assert t_chance(value, degrees) == pytest.approx(t.cdf(value, degrees), abs=1e-12)


def test_many_degrees_are_normal() -> None:
    assert t_chance(1.96, 500) == pytest.approx(0.975, abs=1e-3)


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ([0.0, 0.1], 0.05),  # nothing stands out: the mean
        ([0.0, 5.0], 0.15),  # m = (0 + m + 0.15) / 2
        ([0.0, 0.0, 5.0], 0.075),  # m = (0 + 0 + m + 0.15) / 3
        ([-5.0, 0.0], -4.85),  # what is fast was not disturbed
    ],
)
def test_a_slow_reading_counts_as_no_slower_than_noise_makes_it(
    logs: list[float], expected: float
) -> None:
    assert usual(logs, noise=0.1) == pytest.approx(expected)


def two(first: list[float], other: list[float]) -> dict[str, Looks]:
    return {
        "first": Looks([math.log(ns) for ns in first], 0.01),
        "other": Looks([math.log(ns) for ns in other], 0.01),
    }


def test_six_of_six_rounds_one_way_are_evidence() -> None:
    found = estimated(two([80], [4]), "first", "other", [(80.0, 4.0)] * 6, 0.005, 0)
    assert found is not None
    assert found.chance > 0.99
    assert math.exp(found.gain) == pytest.approx(20)


def test_a_change_of_pace_between_the_looks_is_outvoted_by_rounds() -> None:
    """The other was looked at while the device was half as fast."""
    rounds = [(100.0 * k, 80.0 * k) for k in (1.0, 1.01, 0.99, 1.0)]
    found = estimated(two([100, 100], [160, 160]), "first", "other", rounds, 0.01, 2)
    assert found is not None
    assert found.gain == pytest.approx(math.log(1.25), abs=0.02)


def test_rounds_of_which_most_were_disturbed_are_read_one_config_at_a_time() -> None:
    rounds = [(100.0, 250.0), (300.0, 80.0), (100.0, 80.0), (310.0, 80.0), (100.0, 81.0)]
    found = estimated(two([100, 101], [80, 81]), "first", "other", rounds, 0.01, 2)
    assert found is not None
    assert found.chance > 0.9
    assert found.gain == pytest.approx(math.log(1.25), abs=0.05)


def test_the_luckiest_of_many_equals_is_shrunk_to_what_the_rest_are() -> None:
    """The best of sixty looks a fifth faster than the first, by luck alone, in every case."""
    left = 0
    for seed in range(40):
        rng, race = random.Random(seed), Race()
        for number in range(60):
            race.enter(str(number), number)
            race.record(str(number), [100 * math.exp(rng.gauss(0, 0.1)) for _ in range(2)])
        best = race.live[0]
        found = race.estimate("0", best)
        assert found is not None
        left += found.chance >= 0.75 and found.gain > math.log(1.02)
    assert left <= 20


def test_one_that_really_is_faster_stays_so_among_many() -> None:
    rng, race = random.Random(3), Race()
    for number in range(60):
        race.enter(str(number), number)
        ns = 50 if number == 17 else 100
        race.record(str(number), [ns * math.exp(rng.gauss(0, 0.1)) for _ in range(2)])
    found = race.estimate("0", "17")
    assert found is not None
    assert found.chance > 0.95


def test_nothing_is_said_of_what_was_never_sampled() -> None:
    race = Race()
    race.enter("a", 0)
    race.record("a", [1.0])
    race.enter("b", 1)
    assert race.estimate("a", "b") is None

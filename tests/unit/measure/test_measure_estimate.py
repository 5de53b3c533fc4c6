"""Which of two is faster by all evidence: against SciPy, closed forms and made-up devices."""

from __future__ import annotations

import math
import random

import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm, t

from whet.measure.racing.race import Race
from whet.measure.racing.stats import Estimate, Looks, estimated, t_chance, usual


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 30, 100])
def test_chances_are_students(degrees: int) -> None:
    for value in (-6.0, -1.0, 0.0, 0.3, 0.6745, 2.0, 9.0):
        assert t_chance(value, degrees) == pytest.approx(t.cdf(value, degrees), abs=1e-12)


def test_more_than_a_hundred_degrees_are_normal() -> None:
    assert t_chance(1.96, 101) == pytest.approx(norm.cdf(1.96), abs=1e-12)


@pytest.mark.parametrize(("gain", "chance"), [(0.1, 1.0), (0.0, 0.5), (-0.1, 0.0)])
def test_without_an_error_a_gain_is_certain(gain: float, chance: float) -> None:
    assert Estimate(gain, 0.0, 3).chance == chance


def test_a_chance_is_that_of_the_gain_by_its_error() -> None:
    assert Estimate(0.06, 0.03, 5).chance == pytest.approx(t.cdf(2, 5))


class TestJoining:
    """What was seen of two alone, and in rounds, as one number with its error."""

    def field(self, *locations: float, between: float = 0.0) -> dict[str, Looks]:
        return {str(at): Looks([log], between) for at, log in enumerate(locations)}

    def huber(self, values: list[float], errors: list[float]) -> float:
        """The location with the least loss, which grows as a square up to 1.5 errors."""

        def loss(at: float) -> float:
            away = [abs(value - at) / error for value, error in zip(values, errors, strict=True)]
            return sum(one**2 if one < 1.5 else 3 * one - 2.25 for one in away)

        return float(minimize_scalar(loss, (min(values), max(values)), tol=1e-12).x)

    def test_without_rounds_it_is_the_difference_of_both(self) -> None:
        field = {"a": Looks([0.0, 0.02], 0.03), "b": Looks([0.3] * 4, 0.04)}
        found = estimated(field, "b", "a", [], 0.1, 4)
        assert found is not None
        assert found.gain == pytest.approx(0.29)
        error = math.hypot(math.hypot(0.1 / math.sqrt(2), 0.03), math.hypot(0.1 / 2, 0.04))
        assert (found.error, found.degrees) == (pytest.approx(error), 4)

    def test_nothing_known_before_counts_as_one_degree(self) -> None:
        found = estimated(self.field(0.0, 0.1), "0", "1", [], 0.1, 0)
        assert found is not None
        assert found.degrees == 1

    def test_among_many_the_other_is_shrunk_as_by_james_and_stein(self) -> None:
        locations = [0.0, 0.1, 0.2, 0.3, 0.4]
        found = estimated(self.field(*locations, between=0.08), "4", "0", [], 0.06, 3)
        share = 1 - (5 - 3) * 0.01 / 0.1
        assert found is not None
        assert found.gain == pytest.approx(0.2 + share * 0.2)
        assert found.error == pytest.approx(math.hypot(0.1, math.sqrt(share) * 0.1))

    def test_a_tenth_of_a_difference_is_left_however_alike_they_look(self) -> None:
        found = estimated(self.field(0.0, 0.01, 0.02, 0.03), "3", "0", [], 0.5, 3)
        assert found is not None
        assert found.gain == pytest.approx(0.015 + 0.1 * 0.015)
        assert found.error == pytest.approx(0.5 * math.sqrt(1.1))

    def test_among_three_nobody_is_lucky(self) -> None:
        found = estimated(self.field(0.0, 0.01, 0.02), "2", "0", [], 0.5, 3)
        assert found is not None
        assert found.gain == pytest.approx(0.02)

    def test_equals_are_no_trouble(self) -> None:
        found = estimated(self.field(0.1, 0.1, 0.1, 0.1), "2", "0", [], 0.5, 3)
        assert found is not None
        assert (found.gain, found.error) == (0.0, pytest.approx(0.5 * math.sqrt(2)))

    def test_each_round_counts_by_its_error(self) -> None:
        """The race: 0.2 ± 0.2·√2; two rounds of a quarter with 0.2·√2 each."""
        rounds = [(math.exp(0.25), 1.0), (math.exp(0.35), math.exp(0.1))]
        found = estimated(self.field(0.0, -0.2), "0", "1", rounds, 0.2, 3)
        assert found is not None
        assert found.gain == pytest.approx((0.2 + 0.25 + 0.25) / 3)
        assert (found.error, found.degrees) == (pytest.approx(0.2 * math.sqrt(2 / 3)), 3)

    def test_from_three_rounds_on_their_own_noise_is_pooled(self) -> None:
        """Rounds that lie 0, 0.03 and 0.05 from their median: the lower middle is 0.03."""
        gaps = [0.25, 0.28, 0.20]
        rounds = [(math.exp(gap + k), math.exp(k)) for gap, k in zip(gaps, (0, 1, -1), strict=True)]
        found = estimated(self.field(0.0, -0.25), "0", "1", rounds, 0.02, 3)
        own = 0.03 / norm.ppf(0.75) / math.sqrt(2)
        noise = math.sqrt((3 * 0.02**2 + own**2) / 4)
        assert found is not None
        assert found.degrees == 3 + 1
        assert found.error == pytest.approx(noise * math.sqrt(2 / 4))
        assert found.gain == pytest.approx(self.huber([0.25, *gaps], [noise * 2**0.5] * 4))

    def test_what_lies_apart_counts_as_no_farther_than_one_and_a_half_errors(self) -> None:
        rounds = [(math.exp(gap), 1.0) for gap in (0.30, 0.32, 0.34, 2.0)]
        found = estimated({}, "0", "1", rounds[:2], 0.1, 3)
        assert found is not None
        assert (found.gain, found.error) == (pytest.approx(0.31), pytest.approx(0.1))
        far = estimated(self.field(0.0, -3.0), "0", "1", rounds[:2], 0.1, 3)
        assert far is not None
        expected = self.huber([3.0, 0.30, 0.32], [0.1 * math.sqrt(2)] * 3)
        assert far.gain == pytest.approx(expected, abs=1e-3)

    def test_where_both_were_never_raced_only_their_rounds_count(self) -> None:
        found = estimated(self.field(0.0), "0", "1", [(2.0, 1.0)], 0.1, 0)
        assert found is not None
        assert found.gain == pytest.approx(math.log(2))
        assert (found.error, found.degrees) == (pytest.approx(0.1 * math.sqrt(2)), 1)
        assert estimated(self.field(0.0), "0", "1", [], 0.1, 0) is None

    def test_where_no_noise_was_known_even_one_round_tells_of_it(self) -> None:
        """Seen in the race: 0.3; the round says 0.1. Half of what lies between, as two readings
        make it."""
        field = self.field(0.3, 0.0, 0.15, 0.15)
        found = estimated(field, "0", "1", [(math.exp(0.1), 1.0)], 0.01, 0)
        noise = 0.2 / norm.ppf(0.75) / 2
        share = max(0.1, 1 - noise**2 / 0.045)
        raced = 0.15 + share * 0.15
        race, turn = noise * math.sqrt(1 + share), noise * math.sqrt(2)
        assert found is not None
        weights = [race**-2, turn**-2]
        mean = (weights[0] * raced + weights[1] * 0.1) / sum(weights)
        assert found.gain == pytest.approx(mean)
        assert (found.error, found.degrees) == (pytest.approx(sum(weights) ** -0.5), 1)
        known = estimated(field, "0", "1", [(math.exp(0.1), 1.0)], 0.01, 1)
        few = estimated(self.field(0.3, 0.0), "0", "1", [(math.exp(0.1), 1.0)], 0.01, 0)
        assert known is not None
        assert few is not None
        assert known.error < 0.02
        assert few.error < 0.02

    def test_rounds_that_vary_together_less_than_apart_are_read_one_config_at_a_time(self) -> None:
        """Most readings lie 0.01 from their config's median; most rounds were disturbed."""
        first, other = [1.0, 1.01, 1.9, 1.0, 1.8], [0.5, 1.6, 0.51, 0.49, 0.5]
        rounds = [(math.exp(a), math.exp(b)) for a, b in zip(first, other, strict=True)]
        found = estimated(self.field(1.0, 0.5), "0", "1", rounds, 0.02, 4)
        own = 0.01 / norm.ppf(0.75)
        noise = math.sqrt((4 * 0.02**2 + 2 * own**2) / 6)
        alone = usual(first, noise) - usual(other, noise)
        assert found is not None
        assert found.degrees == 6
        error = (1 / (2 * noise**2) + 5 / (2 * noise**2)) ** -0.5
        assert found.error == pytest.approx(error)
        assert found.gain == pytest.approx((0.5 + 5 * alone) / 6)


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


@pytest.mark.medium
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

"""Noise, intervals and paired ratios, against closed forms, scipy and simulation."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from whet.measure.racing.stats import (
    Noise,
    gap_degrees,
    interval,
    location_width,
    low_median,
    middle_mean,
    paired_ratio,
    percent_text,
    t_quantile,
    time_text,
)


def test_of_two_readings_the_lower_counts() -> None:
    assert low_median([9.0, 1.0]) == 1.0
    assert low_median([5.0, 1.0, 9.0]) == 5.0
    assert low_median([5.0, 1.0, 9.0, 7.0]) == 5.0


def test_the_middle_mean_leaves_outliers_out() -> None:
    columns = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [900.0, -70.0]])
    assert middle_mean(columns).tolist() == [2.5, 5.0]
    assert middle_mean(columns[:1]).tolist() == [1.0, 5.0]


def test_between_two_speeds_the_middle_mean_lies_between() -> None:
    slow, fast = [1.1] * 11, [1.0] * 10
    assert 1.0 < middle_mean(np.array([slow + fast]).T)[0] < 1.1


@pytest.mark.parametrize("confidence", [0.02, 0.3, 0.8, 0.95, 0.99])
@pytest.mark.parametrize(
    ("degrees", "ordinary", "far"),
    [(1, 1e-9, 1e-9), (2, 1e-9, 1e-9), (3, 2e-4, 8e-3), (4, 6e-5, 2.3e-3), (10, 6e-7, 3e-5)],
)
def test_students_quantile_is_right(
    confidence: float, degrees: int, ordinary: float, far: float
) -> None:
    """It is an expansion in 1 / degrees, which is worst for few of them and far out."""
    exact = reference.t.ppf((1 + confidence) / 2, degrees)
    within = ordinary if confidence < 0.9 else far
    assert t_quantile(confidence, degrees) == pytest.approx(exact, rel=within)


def test_the_location_of_many_readings_scatters_as_a_median_does() -> None:
    """√(π/2) times as wide as the mean; the lower of two is a reading like any other."""
    widths = [location_width(n) for n in (1, 2, 8, 50)]
    expected = [1.0, math.sqrt(math.pi / 4), math.sqrt(math.pi / 16), math.sqrt(math.pi / 100)]
    assert widths == pytest.approx(expected)


def test_three_gaps_are_worth_one_degree_of_freedom() -> None:
    assert [gap_degrees(gaps) for gaps in (0, 1, 5, 6, 30)] == [1, 1, 1, 2, 10]


class TestNoise:
    def test_pairs_of_many_configs_give_the_noise_that_one_pair_cannot(self) -> None:
        rng = random.Random(1)
        noise = Noise(floor=0.001)
        for _ in range(400):
            level = rng.uniform(5, 15)
            noise.add([level + rng.gauss(0, 0.02) for _ in range(2)])
        assert noise.sigma == pytest.approx(0.02, rel=0.15)

    def test_outliers_hardly_change_it(self) -> None:
        rng = random.Random(2)
        noise = Noise(floor=0.001)
        for _ in range(400):
            pair = [rng.gauss(0, 0.02) for _ in range(2)]
            if rng.random() < 0.1:
                pair[rng.randrange(2)] += rng.uniform(0.5, 2)
            noise.add(pair)
        assert noise.sigma == pytest.approx(0.02, rel=0.25)

    def test_it_is_the_median_gap_by_that_of_two_normal_readings(self) -> None:
        noise = Noise(floor=0.001)
        noise.add([0.0, 0.05, 0.03, 0.04, 0.0])  # gaps of 0.05, 0.02, 0.01, 0.04
        typical = math.sqrt(2) * reference.norm.ppf(0.75)
        assert noise.sigma == pytest.approx(0.04 / typical)
        assert noise.known == (pytest.approx(0.02 / typical), 1)

    def test_a_single_gap_tells_nothing(self) -> None:
        noise = Noise(floor=0.001)
        noise.add([0.0, 0.05])
        assert noise.known == (0.001, 0)
        noise.add([0.0, 0.0001])
        assert noise.known == (0.001, 1)

    def test_how_far_off_a_location_may_be_is_its_width_by_students_quantile(self) -> None:
        noise = Noise(floor=0.02)
        noise.add([0.0] * 31)
        own = 0.02 * math.sqrt(math.pi / 8)
        half = reference.t.ppf(0.975, 10) * math.hypot(own, 0.01)
        assert noise.half_width(4, 0.01, 0.95) == pytest.approx(half, rel=1e-4)

    def test_it_never_falls_below_the_floor(self) -> None:
        noise = Noise(floor=0.005)
        assert noise.sigma == 0.005
        noise.add([1.0, 1.0, 1.0])
        assert noise.sigma == 0.005

    def test_little_evidence_widens_what_it_is_multiplied_by(self) -> None:
        noise = Noise(floor=0.005)
        unknown = noise.quantile(0.95)
        noise.add([0.0, 0.01] * 300)
        assert unknown > 10
        assert noise.quantile(0.95) == pytest.approx(1.97, abs=0.02)


class TestInterval:
    def test_few_samples_have_none_of_their_own(self) -> None:
        assert interval([1.0, 2.0, 3.0], 0.95) is None
        assert interval([], 0.95, noise=0.01) is None

    def test_few_samples_have_one_where_the_noise_is_known(self) -> None:
        half = reference.norm.ppf(0.975) * 0.01
        ends = (100 * math.exp(-half), 100 * math.exp(half))
        assert interval([100.0], 0.95, noise=0.01) == pytest.approx(ends)
        half *= math.sqrt(math.pi / 6)
        ends = (100 * math.exp(-half), 100 * math.exp(half))
        assert interval([100.0, 90.0, 110.0], 0.95, noise=0.01) == pytest.approx(ends)

    def test_many_samples_speak_for_themselves(self) -> None:
        assert interval([5.0, 1.0, 2.0, 3.0, 4.0, 6.0], 0.95, noise=9.0) == (1.0, 6.0)


def signed_rank_cut(n: int, confidence: float) -> int:
    """By counting: how many of the 2ⁿ signs of the ranks 1…n give each sum."""
    ways = [1]
    for rank in range(1, n + 1):
        ways = [a + b for a, b in zip(ways + [0] * rank, [0] * rank + ways, strict=True)]
    below = itertools.accumulate(ways)
    return sum(chance <= (1 - confidence) / 2 * 2**n for chance in below) - 1


class TestPairedRatio:
    @pytest.mark.parametrize(("n", "within"), [(6, 0), (17, 0), (60, 0), (61, 1), (80, 1)])
    def test_its_ends_are_walsh_averages_by_the_signed_rank_distribution(
        self, n: int, within: int
    ) -> None:
        """Of more than sixty pairs by the normal one, which is one off at most."""
        gaps = np.random.default_rng(n).normal(size=n)
        walsh = np.sort([(a + b) / 2 for at, a in enumerate(gaps) for b in gaps[at:]])
        ratio = paired_ratio(np.exp(gaps), np.ones(n), 0.95)
        assert ratio is not None
        cut = signed_rank_cut(n, 0.95)
        low, mid, high = np.log(ratio)
        assert abs(int(np.searchsorted(walsh, low - 1e-9)) - cut) <= within
        assert abs(len(walsh) - 1 - int(np.searchsorted(walsh, high - 1e-9)) - cut) <= within
        assert mid == pytest.approx(np.median(walsh))

    def test_many_pairs_are_cut_where_the_normal_distribution_says(self) -> None:
        """2525 ± 1.96 × 290.8, less a half: 1954 of the 5050 averages lie below."""
        ratio = paired_ratio(np.exp(np.arange(100.0)), np.ones(100), 0.95)
        averages = sorted((a + b) / 2 for a in range(100) for b in range(a, 100))
        assert ratio is not None
        assert math.log(ratio.low) == pytest.approx(averages[1954])

    def test_a_confidence_that_no_average_may_be_left_out_for_has_all_of_them(self) -> None:
        gaps = np.random.default_rng(0).normal(size=61)
        ratio = paired_ratio(np.exp(gaps), np.ones(61), 1 - 1e-13)
        assert ratio is not None
        assert np.log([ratio.low, ratio.high]) == pytest.approx([gaps.min(), gaps.max()])

    def test_too_few_pairs_give_none(self) -> None:
        assert paired_ratio([1.0] * 5, [1.0] * 5, 0.95) is None
        assert paired_ratio([1.0] * 6, [1.0] * 6, 0.95) is not None
        assert paired_ratio([], [], 0.95) is None

    @pytest.mark.medium
    def test_it_agrees_with_the_signed_rank_test(self) -> None:
        """The interval holds exactly the ratios which the test does not reject."""
        rng = random.Random(5)
        for _ in range(20):
            gaps = [rng.gauss(0.01, 0.03) for _ in range(12)]
            times = [math.exp(gap) for gap in gaps]
            ratio = paired_ratio(times, [1.0] * 12, 0.95)
            assert ratio is not None
            for end, inside in ((ratio.low, 1e-6), (ratio.high, -1e-6)):
                for shift, rejected in ((inside, False), (-inside, True)):
                    rest = [gap - math.log(end) - shift for gap in gaps]
                    p = reference.wilcoxon(rest, method="exact").pvalue
                    assert bool(p < 0.05) is rejected

    @pytest.mark.medium
    @given(
        st.lists(st.floats(0.5, 2), min_size=6, max_size=30),
        st.floats(0.1, 10),
        st.floats(0.1, 10),
    )
    def test_it_is_a_ratio(self, noise: list[float], scale: float, other: float) -> None:
        base = paired_ratio(noise, [1.0] * len(noise), 0.95)
        scaled = paired_ratio([n * scale for n in noise], [other] * len(noise), 0.95)
        assert base is not None
        assert scaled is not None
        assert scaled == pytest.approx([end * scale / other for end in base], rel=1e-9)
        assert scaled.low <= scaled.mid <= scaled.high

    def test_swapping_the_two_inverts_it(self) -> None:
        one, two = [1.0, 1.2, 1.1, 1.3, 0.9, 1.15, 1.05], [1.0] * 7
        ratio, inverse = paired_ratio(one, two, 0.95), paired_ratio(two, one, 0.95)
        assert ratio is not None
        assert inverse is not None
        assert inverse == pytest.approx((1 / ratio.high, 1 / ratio.mid, 1 / ratio.low))

    @pytest.mark.medium
    @pytest.mark.parametrize("pairs", [8, 24, 80])
    def test_it_covers_the_truth_as_often_as_it_says(self, pairs: int) -> None:
        covered = 0
        for seed in range(400):
            rng = random.Random(seed)

            def reading(level: float, rng: random.Random = rng) -> float:
                tail = rng.uniform(1, 3) if rng.random() < 0.05 else 1.0
                return level * rng.gauss(1, 0.02) * tail

            times, others = zip(*((reading(103), reading(100)) for _ in range(pairs)), strict=True)
            ratio = paired_ratio(times, others, 0.95)
            assert ratio is not None
            covered += ratio.low <= 1.03 <= ratio.high
        assert covered >= 0.92 * 400

    def test_drift_that_both_share_cancels(self) -> None:
        drift = [1.0 + 0.1 * i for i in range(10)]
        ratio = paired_ratio([1.02 * d for d in drift], drift, 0.95)
        assert ratio == pytest.approx((1.02, 1.02, 1.02))


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (950.4, "950 ns"),
        (1000, "1 µs"),
        (12_340, "12.3 µs"),
        (1e6, "1 ms"),
        (4_560_000, "4.56 ms"),
        (1e9, "1 s"),
        (1.2e9, "1.2 s"),
    ],
)
def test_times_are_read_in_the_unit_that_suits_them(ns: float, text: str) -> None:
    assert time_text(ns) == text


def test_shares_are_read_as_percentages() -> None:
    assert percent_text(0.0123) == "1.2 %"
    assert percent_text(0.994) == "99 %"
    assert percent_text(0.995) == "100 %"
    assert percent_text(-0.0123) == "-1.2 %"
    assert percent_text(1.351) == "135 %"

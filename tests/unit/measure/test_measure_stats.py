"""Noise, intervals and paired ratios, against closed forms, scipy and simulation."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from whet.measure.racing.stats import (
    Noise,
    interval,
    low_median,
    middle_mean,
    paired_ratio,
    percent_text,
    t_quantile,
    time_text,
    unpaired_ratio,
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


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 20, 200])
def test_students_quantile_is_right(confidence: float, degrees: int) -> None:
    exact = reference.t.ppf((1 + confidence) / 2, degrees)
    assert t_quantile(confidence, degrees) == pytest.approx(exact, rel=0.03)


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
        ends = interval([100.0], 0.95, noise=0.01)
        assert ends == pytest.approx((98.06, 101.98), abs=0.01)

    def test_many_samples_speak_for_themselves(self) -> None:
        assert interval([5.0, 1.0, 2.0, 3.0, 4.0, 6.0], 0.95, noise=9.0) == (1.0, 6.0)


class TestPairedRatio:
    def test_too_few_pairs_give_none(self) -> None:
        assert paired_ratio([1.0] * 5, [1.0] * 5, 0.95) is None
        assert paired_ratio([], [], 0.95) is None

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
    [(950.4, "950 ns"), (12_340, "12.3 µs"), (4_560_000, "4.56 ms"), (1.2e9, "1.2 s")],
)
def test_times_are_read_in_the_unit_that_suits_them(ns: float, text: str) -> None:
    assert time_text(ns) == text


def test_shares_are_read_as_percentages() -> None:
    assert percent_text(0.0123) == "1.2 %"
    assert percent_text(1.351) == "135 %"


@pytest.mark.parametrize(("n", "m"), [(4, 4), (5, 9), (12, 7)])
def test_an_unpaired_interval_excludes_equality_where_a_rank_sum_test_does(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    for shift in np.linspace(0.0, 0.2, 60):
        one, other = np.exp(rng.normal(shift, 0.05, n)), np.exp(rng.normal(0.0, 0.05, m))
        ratio = unpaired_ratio(one, other, 0.95)
        assert ratio is not None
        unequal = not ratio.low <= 1 <= ratio.high
        assert unequal == (reference.mannwhitneyu(one, other, method="exact").pvalue <= 0.05)


def test_too_few_unpaired_readings_say_nothing() -> None:
    assert unpaired_ratio([2.0, 2.0, 2.0], [1.0, 1.0, 1.0], 0.95) is None

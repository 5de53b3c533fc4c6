from __future__ import annotations

from whet.measure import Precision


def test_it_goes_on_while_nothing_is_known() -> None:
    assert Precision().done([], 0.0) is None


def test_it_ends_when_the_median_is_known_well_enough() -> None:
    rule = Precision(relative=0.01)
    assert rule.done([100.0, 100.5, 99.6, 100.2, 99.9], 0.0) is None
    assert rule.done([100.0, 100.5, 99.6, 100.2, 99.9, 100.1], 0.0) == "precision"


def test_it_goes_on_while_samples_disagree() -> None:
    assert Precision(relative=0.01).done([100.0, 130.0] * 8, 0.0) is None


def test_known_noise_lets_few_samples_be_precise() -> None:
    rule = Precision(relative=0.01, noise=0.004, min_samples=2)
    assert rule.done([100.0], 0.0) is None
    assert rule.done([100.0, 101.0], 0.0) == "precision"


def test_it_ends_at_the_largest_number_of_samples() -> None:
    assert Precision(max_samples=4).done([1.0, 2.0, 3.0, 4.0], 0.0) == "samples"


def test_it_ends_when_the_time_is_up() -> None:
    rule = Precision(max_seconds=2.0)
    assert rule.done([1.0, 2.0], 1.9) is None
    assert rule.done([1.0, 2.0], 2.0) == "time"


def test_precision_is_the_better_reason() -> None:
    rule = Precision(relative=0.5, max_samples=6, max_seconds=1.0)
    assert rule.done([100.0] * 6, 9.0) == "precision"

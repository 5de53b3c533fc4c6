"""What is said of two frontiers follows their numbers, whichever way these go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from whet.replay.frontier import Comparison, compare
from whet.replay.pareto import Cloud

MOVED = Comparison("auto", "sequential", 0.07, 0.04, 0.1, 20.0, 10.0, (1.5, 2.7))


def test_ahead_in_both_is_said_without_a_but() -> None:
    said = MOVED.verdict
    assert "area +0.070 (95 % interval +0.040 to +0.100); " in said
    assert "2.00× sooner (1.50 to 2.70): after 10 s instead of 20 s" in said
    assert "but" not in said


@pytest.mark.parametrize(("after", "sooner"), [(20.4, (0.9, 1.1)), (19.6, (0.9, 1.2))])
def test_a_time_within_the_noise_is_no_difference(
    after: float, sooner: tuple[float, float]
) -> None:
    said = replace(MOVED, after=after, sooner=sooner).verdict
    assert "but no clear difference" in said
    assert "sooner" not in said
    assert "instead of" not in said


def test_later_is_called_later() -> None:
    said = replace(MOVED, after=40.0, sooner=(0.4, 0.6)).verdict
    assert "auto moves the frontier:" in said
    assert "; but " in said
    assert "2.00× later (1.67 to 2.50): after 40 s" in said


def test_a_frontier_that_goes_back_is_said_to() -> None:
    back = replace(MOVED, gain=-0.07, low=-0.1, high=-0.04, after=40.0, sooner=(0.4, 0.6))
    assert back.verdict.startswith("auto moves the frontier back: area -0.070")
    assert "2.00× later" in back.verdict
    assert "but" not in back.verdict


@pytest.mark.parametrize("against", ["sequential", "parallel compilation (16×)"])
def test_a_gain_within_the_noise_cannot_be_told_from_none(against: str) -> None:
    still = replace(MOVED, against=against, gain=0.02, low=-0.01, high=0.05)
    assert still.verdict.startswith(f"auto cannot be told apart from {against}: area +0.020")
    assert "; but " in still.verdict
    assert "2.00× sooner" in still.verdict


def test_a_gain_too_small_to_matter_is_called_small() -> None:
    assert "hardly moves" in replace(MOVED, gain=0.005, low=0.002, high=0.008).verdict
    assert "hardly moves" in replace(MOVED, gain=0.001, low=-0.006, high=0.009).verdict


@pytest.mark.parametrize("gain", [0.009, 0.011])
def test_what_is_said_does_not_turn_with_the_estimate_within_its_interval(gain: float) -> None:
    said = replace(MOVED, gain=gain, low=0.004, high=0.016).verdict
    assert said.startswith("auto moves the frontier, perhaps by too little to matter: area")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, None, "; neither reaches 95 % of the optimum"),
        (20.0, None, "; it never reaches 95 % of the optimum, which takes 20 s without it"),
        (None, 10.0, "; it reaches 95 % of the optimum after 10 s, and never without it"),
    ],
)
def test_what_is_not_reached_is_said_not_to_be(
    before: float | None, after: float | None, said: str
) -> None:
    assert replace(MOVED, before=before, after=after, sooner=None).verdict.endswith(said)


def test_what_only_some_runs_reach_is_too_uncertain_to_compare() -> None:
    assert "too uncertain" in replace(MOVED, sooner=None).verdict


def tunings(factor: float, seed: int) -> Cloud:
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.uniform(1, 50, 200))[:, None] * rng.uniform(0.9, 1.1, (200, 20))
    fraction = 1 - 1 / (1 + seconds) + rng.normal(0, 0.01, seconds.shape)
    return Cloud("sequential", seconds * factor, fraction, np.arange(200))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("factor", "said"),
    [(0.5, "sooner"), (2.0, "later"), (1.0, "no clear difference")],
)
def test_the_interval_of_the_time_is_that_of_the_runs(factor: float, said: str) -> None:
    found = compare(tunings(factor, 1), tunings(1.0, 2), "it")
    assert said in found.verdict
    assert found.sooner is not None
    low, high = found.sooner
    assert low < 1 / factor < high

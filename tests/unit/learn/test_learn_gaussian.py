"""The Gaussian process over a pool."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from whet.learn.acquisition import expected_improvement
from whet.learn.gaussian import Hyperparameters, Posterior, fit_hyperparameters, matern

Floats = npt.NDArray[np.float64]

POINTS = np.random.default_rng(0).random((60, 3)).astype(np.float32)
VALUES = np.sin(4 * POINTS[:, 0].astype(float)) + 0.3 * POINTS[:, 1]


def textbook(rows: list[int], hyperparameters: Hyperparameters) -> tuple[Floats, Floats]:
    """The posterior by the formula, all at once."""
    scaled = POINTS / hyperparameters.length_scales.astype(np.float32)
    kernel = matern(((scaled[:, None] - scaled[None]) ** 2).sum(axis=2)).astype(float)
    there = kernel[np.ix_(rows, rows)] + hyperparameters.noise * np.eye(len(rows))
    shift, scale = VALUES[rows].mean(), VALUES[rows].std()
    z = (VALUES[rows] - shift) / scale
    solved = np.linalg.solve(there, kernel[rows])
    variance = (z @ np.linalg.solve(there, z) + 1) / (len(rows) + 1)
    unexplained = 1 - (kernel[rows] * solved).sum(axis=0)
    return shift + scale * (z @ solved), scale * np.sqrt(np.maximum(unexplained, 1e-9) * variance)


def test_what_is_added_one_by_one_gives_what_the_formula_gives() -> None:
    posterior = Posterior(POINTS)
    rows = list(range(0, 60, 4))
    for row in rows:
        posterior.add(row)
    mean, deviation = posterior.predict(VALUES[rows])
    expected_mean, expected_deviation = textbook(rows, posterior.hyperparameters)
    assert mean == pytest.approx(expected_mean, abs=1e-2)
    assert deviation == pytest.approx(expected_deviation, abs=1e-2)


def test_starting_again_with_all_rows_changes_nothing() -> None:
    one, other = Posterior(POINTS), Posterior(POINTS)
    for row in range(40):
        one.add(row)
    other.reset(one.hyperparameters, range(40))
    assert one.predict(VALUES[:40])[0] == pytest.approx(other.predict(VALUES[:40])[0], abs=1e-2)


def test_points_that_join_late_are_predicted_as_if_they_had_been_there() -> None:
    whole, grown = Posterior(POINTS), Posterior(POINTS[:30])
    for row in range(10):
        whole.add(row)
        grown.add(row)
    grown.extend(POINTS[30:])
    for mine, theirs in zip(grown.predict(VALUES[:10]), whole.predict(VALUES[:10]), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-3)


def test_an_observation_without_a_value_lowers_the_variance_around_it() -> None:
    posterior = Posterior(POINTS)
    for row in range(5):
        posterior.add(row)
    before = posterior.predict(VALUES[:5])[1]
    posterior.add(50)
    after = posterior.predict(np.append(VALUES[:5], VALUES[:5].mean()))[1]
    assert after[50] < 0.2 * before[50]


def test_a_column_that_does_not_matter_gets_the_longest_scale() -> None:
    values = (VALUES - VALUES.mean()) / VALUES.std()
    hyperparameters = fit_hyperparameters(POINTS, values, Hyperparameters.default(3))
    assert hyperparameters.length_scales.argmax() == 2
    assert hyperparameters.length_scales.argmin() == 0


def test_equal_values_are_no_trouble() -> None:
    posterior = Posterior(POINTS)
    for row in range(4):
        posterior.add(row)
    mean, deviation = posterior.predict(np.full(4, 7.0))
    assert mean == pytest.approx(np.full(60, 7.0))
    assert np.isfinite(deviation).all()


def test_the_expected_improvement_never_loses_its_order_far_above_the_best() -> None:
    means = np.linspace(0.0, 12.0, 40, dtype=np.float32)
    gain = expected_improvement(means, np.ones(40, dtype=np.float32), 0.0)
    assert (np.diff(gain) < 0).all()
    assert gain[0] == pytest.approx(0.3989, abs=1e-3)

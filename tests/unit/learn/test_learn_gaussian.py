"""The Gaussian process over a pool."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from whet.learn.acquisition import expected_improvement
from whet.learn.gaussian import Field, Scales, fitted, matern

Floats = npt.NDArray[np.float64]

POINTS = np.random.default_rng(0).random((60, 3)).astype(np.float32)
VALUES = np.sin(4 * POINTS[:, 0].astype(float)) + 0.3 * POINTS[:, 1]


def textbook(rows: list[int], scales: Scales) -> tuple[Floats, Floats]:
    """The posterior by the formula, all at once."""
    scaled = POINTS / scales.lengths.astype(np.float32)
    kernel = matern(((scaled[:, None] - scaled[None]) ** 2).sum(axis=2)).astype(float)
    there = kernel[np.ix_(rows, rows)] + scales.noise * np.eye(len(rows))
    shift, scale = VALUES[rows].mean(), VALUES[rows].std()
    z = (VALUES[rows] - shift) / scale
    solved = np.linalg.solve(there, kernel[rows])
    variance = (z @ np.linalg.solve(there, z) + 1) / (len(rows) + 1)
    doubt = 1 - (kernel[rows] * solved).sum(axis=0)
    return shift + scale * (z @ solved), scale * np.sqrt(np.maximum(doubt, 1e-9) * variance)


def test_what_is_added_one_by_one_gives_what_the_formula_gives() -> None:
    field = Field(POINTS)
    rows = list(range(0, 60, 4))
    for row in rows:
        field.add(row)
    mean, deviation = field.posterior(VALUES[rows])
    expected_mean, expected_deviation = textbook(rows, field.scales)
    assert mean == pytest.approx(expected_mean, abs=1e-2)
    assert deviation == pytest.approx(expected_deviation, abs=1e-2)


def test_starting_again_with_all_rows_changes_nothing() -> None:
    one, other = Field(POINTS), Field(POINTS)
    for row in range(40):
        one.add(row)
    other.reset(one.scales, range(40))
    assert one.posterior(VALUES[:40])[0] == pytest.approx(other.posterior(VALUES[:40])[0], abs=1e-2)


def test_points_that_join_late_are_believed_as_if_they_had_been_there() -> None:
    whole, grown = Field(POINTS), Field(POINTS[:30])
    for row in range(10):
        whole.add(row)
        grown.add(row)
    grown.extend(POINTS[30:])
    for mine, theirs in zip(
        grown.posterior(VALUES[:10]), whole.posterior(VALUES[:10]), strict=True
    ):
        assert mine == pytest.approx(theirs, abs=1e-3)


def test_an_observation_without_a_value_lowers_the_doubt_around_it() -> None:
    field = Field(POINTS)
    for row in range(5):
        field.add(row)
    before = field.posterior(VALUES[:5])[1]
    field.add(50)
    after = field.posterior(np.append(VALUES[:5], VALUES[:5].mean()))[1]
    assert after[50] < 0.2 * before[50]


def test_a_column_that_does_not_matter_gets_the_longest_scale() -> None:
    values = (VALUES - VALUES.mean()) / VALUES.std()
    scales = fitted(POINTS, values, Scales.usual(3))
    assert scales.lengths.argmax() == 2
    assert scales.lengths.argmin() == 0


def test_equal_values_are_no_trouble() -> None:
    field = Field(POINTS)
    for row in range(4):
        field.add(row)
    mean, deviation = field.posterior(np.full(4, 7.0))
    assert mean == pytest.approx(np.full(60, 7.0))
    assert np.isfinite(deviation).all()


def test_the_expected_improvement_never_loses_its_order_far_above_the_best() -> None:
    means = np.linspace(0.0, 12.0, 40, dtype=np.float32)
    gain = expected_improvement(means, np.ones(40, dtype=np.float32), 0.0)
    assert (np.diff(gain) < 0).all()
    assert gain[0] == pytest.approx(0.3989, abs=1e-3)

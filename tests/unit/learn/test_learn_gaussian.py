"""The Gaussian process over a pool, and expected improvement: against scikit-learn and SciPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.linalg import solve
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern
from threadpoolctl import threadpool_info, threadpool_limits

from whet.learn.gaussian import (
    Hyperparameters,
    Posterior,
    expected_improvement,
    fit_hyperparameters,
    matern,
    one_thread,
)

Floats = npt.NDArray[np.float64]

POINTS = np.random.default_rng(0).random((60, 3)).astype(np.float32)
VALUES = np.sin(4 * POINTS[:, 0].astype(float)) + 0.3 * POINTS[:, 1]


def scikit_learn(
    rows: list[int], hyperparameters: Hyperparameters, points: Floats = POINTS
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of its regressor. The signal's variance is the best one by the
    likelihood, with one more value of 1, so that equal values leave some doubt."""
    shift, scale = VALUES[rows].mean(), VALUES[rows].std()
    z = (VALUES[rows] - shift) / scale
    kernel = Matern(hyperparameters.length_scales, nu=2.5)
    process = GaussianProcessRegressor(kernel, alpha=hyperparameters.noise, optimizer=None)
    mean, deviation = process.fit(points[rows], z).predict(points, return_std=True)
    covariance = kernel(points[rows]) + hyperparameters.noise * np.eye(len(rows))
    variance = (z @ solve(covariance, z) + 1) / (len(rows) + 1)
    return shift + scale * mean, scale * deviation * np.sqrt(variance)


def test_the_kernel_is_the_matern_of_scikit_learn() -> None:
    distances = np.linspace(0.0, 6.0, 25)
    expected = Matern(1.0, nu=2.5)(distances[:, None], np.zeros((1, 1)))[:, 0]
    assert matern((distances**2).astype(np.float32)) == pytest.approx(expected, abs=1e-6)


def test_rounding_below_zero_is_no_distance() -> None:
    assert matern(np.array([-1e-6], dtype=np.float32)) == [1.0]


OTHERS = Hyperparameters(np.array([0.3, 0.7, 2.0]), 0.05)


@pytest.mark.parametrize("hyperparameters", [Hyperparameters.default(3), OTHERS])
@pytest.mark.parametrize("count", [5, 15, 50])
def test_what_is_added_one_by_one_gives_what_scikit_learn_gives(
    hyperparameters: Hyperparameters, count: int
) -> None:
    rows = list(range(60))[:: 60 // count][:count]
    posterior = Posterior(POINTS)
    posterior.reset(hyperparameters, rows[:1])
    for row in rows[1:]:
        posterior.add(row)
    mean, deviation = posterior.predict(VALUES[rows])
    expected_mean, expected_deviation = scikit_learn(rows, hyperparameters)
    assert mean == pytest.approx(expected_mean, abs=2e-3)
    assert deviation == pytest.approx(expected_deviation, abs=2e-3)


@pytest.mark.parametrize("count", [2, 40, 60])
def test_starting_again_with_all_rows_gives_what_scikit_learn_gives(count: int) -> None:
    posterior = Posterior(POINTS)
    posterior.reset(OTHERS, range(count))
    mean, deviation = posterior.predict(VALUES[:count])
    expected_mean, expected_deviation = scikit_learn(list(range(count)), OTHERS)
    assert mean == pytest.approx(expected_mean, abs=1e-3)
    assert deviation == pytest.approx(expected_deviation, abs=1e-3)


def test_points_that_join_late_are_predicted_as_if_they_had_been_there() -> None:
    rows, late = list(range(10)), [35, 59]
    grown = Posterior(POINTS[:30])
    grown.reset(OTHERS, rows)
    grown.extend(POINTS[30:])
    assert len(grown) == 60
    for row in late:
        grown.add(row)
    mean, deviation = grown.predict(VALUES[rows + late])
    expected_mean, expected_deviation = scikit_learn(rows + late, OTHERS)
    assert mean == pytest.approx(expected_mean, abs=1e-3)
    assert deviation == pytest.approx(expected_deviation, abs=1e-3)


def test_a_point_observed_twice_is_no_trouble() -> None:
    posterior = Posterior(POINTS)
    posterior.reset(Hyperparameters(np.ones(3), 1e-9), [0])
    posterior.add(0)
    assert np.isfinite(posterior.predict(np.array([1.0, 2.0]))[0]).all()


def test_an_observation_without_a_value_lowers_the_variance_around_it() -> None:
    posterior = Posterior(POINTS)
    for row in range(5):
        posterior.add(row)
    before = posterior.predict(VALUES[:5])[1]
    posterior.add(50)
    after = posterior.predict(np.append(VALUES[:5], VALUES[:5].mean()))[1]
    assert after[50] < 0.2 * before[50]


def test_whitened_columns_have_independent_errors() -> None:
    rows = list(range(12))
    posterior = Posterior(POINTS)
    posterior.reset(OTHERS, rows)
    turn = posterior.whitened(np.eye(12))
    covariance = Matern(OTHERS.length_scales, nu=2.5)(POINTS[rows]) + OTHERS.noise * np.eye(12)
    assert turn @ covariance @ turn.T == pytest.approx(np.eye(12), abs=1e-4)


def test_beforehand_a_length_scale_is_a_little_more_than_the_cube() -> None:
    default = Hyperparameters.default(4)
    assert default.length_scales == pytest.approx([1.2] * 4)
    assert default.noise == 1e-3


def beforehand(theta: Floats) -> float:
    """Minus the log density of the logs: length scales around 1.2, noise around 0.001."""
    scales = norm.logpdf(theta[:-1], np.log(1.2), 0.6).sum()
    return -float(scales + norm.logpdf(theta[-1], np.log(1e-3), 1.5))


def loss(theta: Floats, points: Floats, values: Floats) -> float:
    """Minus the log of the likelihood, by scikit-learn's kernel, and of the prior. The signal's
    variance is the best one where one more value of 1 was seen."""
    n = len(values)
    covariance = Matern(np.exp(theta[:-1]), nu=2.5)(points) + np.exp(theta[-1]) * np.eye(n)
    variance = (values @ solve(covariance, values) + 1) / (n + 1)
    fit = 0.5 * np.linalg.slogdet(covariance)[1] + 0.5 * (n + 1) * np.log(variance)
    return float(fit) + beforehand(theta)


FEW = POINTS[:24]
SMOOTH = (VALUES[:24] - VALUES[:24].mean()) / VALUES[:24].std()
NOISE = np.random.default_rng(1).normal(size=24)
MIXED = (SMOOTH + NOISE) / (SMOOTH + NOISE).std()
BOUNDS = [(np.log(0.05), np.log(20.0))] * 3 + [(np.log(1e-5), np.log(0.5))]


@pytest.mark.medium
@pytest.mark.parametrize("values", [SMOOTH, MIXED, NOISE], ids=["smooth", "mixed", "noise"])
def test_the_hyperparameters_are_the_likeliest_within_bounds(values: Floats) -> None:
    fitted = fit_hyperparameters(FEW, values, Hyperparameters.default(3))
    theta = np.append(np.log(fitted.length_scales), np.log(fitted.noise))
    best = minimize(loss, theta, (FEW.astype(float), values), method="L-BFGS-B", bounds=BOUNDS)
    assert loss(theta, FEW.astype(float), values) == pytest.approx(best.fun, abs=2e-3)
    assert theta == pytest.approx(best.x, abs=0.05)


def test_no_step_leaves_the_hyperparameters_as_they_are() -> None:
    fitted = fit_hyperparameters(FEW, SMOOTH, OTHERS, steps=1)
    assert fitted.length_scales == pytest.approx(OTHERS.length_scales)
    assert fitted.noise == pytest.approx(OTHERS.noise)


def test_hyperparameters_stay_within_what_makes_sense() -> None:
    """However far outside they start: length scales of 0.05 to 20, noise of 0.00001 to 0.5."""
    far = Hyperparameters(np.array([1e-9, 1e9, 1.0]), 1e9)
    fitted = fit_hyperparameters(FEW, SMOOTH, far, steps=2)
    assert (fitted.length_scales >= 0.05 - 1e-9).all()
    assert (fitted.length_scales <= 20 + 1e-9).all()
    assert fitted.noise <= 0.5 + 1e-9
    quiet = fit_hyperparameters(FEW, SMOOTH, Hyperparameters(np.ones(3), 1e-20), steps=2)
    assert quiet.noise >= 1e-5 - 1e-12


def test_equal_values_are_no_trouble() -> None:
    posterior = Posterior(POINTS)
    for row in range(4):
        posterior.add(row)
    mean, deviation = posterior.predict(np.full(4, 7.0))
    assert mean == pytest.approx(np.full(60, 7.0))
    assert np.isfinite(deviation).all()


class TestExpectedImprovement:
    def gain(self, mean: float, deviation: float, best: float) -> float:
        given = (np.array([one], dtype=np.float32) for one in (mean, deviation))
        return float(expected_improvement(*given, best)[0])

    @pytest.mark.parametrize("z", [-2.9, -2.0, -1.5, -0.5, 0.0, 0.7, 2.0, 5.0])
    @pytest.mark.parametrize("deviation", [0.1, 3.0])
    def test_it_is_the_mean_of_the_part_below_the_best(self, z: float, deviation: float) -> None:
        exact = deviation * (z * norm.cdf(z) + norm.pdf(z))
        assert self.gain(4.0 - z * deviation, deviation, 4.0) == pytest.approx(
            exact, rel=0.02, abs=1.5e-4 * deviation
        )

    @pytest.mark.parametrize("z", [-3.5, -5.0, -8.0, -12.0])
    def test_far_above_the_best_its_leading_term_is_right(self, z: float) -> None:
        exact = norm.pdf(z) - abs(z) * norm.sf(abs(z))
        assert self.gain(-z, 1.0, 0.0) == pytest.approx(exact, rel=0.03)

    def test_it_never_loses_its_order_far_above_the_best(self) -> None:
        means = np.linspace(0.0, 12.0, 40, dtype=np.float32)
        gain = expected_improvement(means, np.ones(40, dtype=np.float32), 0.0)
        assert (np.diff(gain) < 0).all()

    def test_beyond_what_single_precision_holds_the_farther_still_promises_less(self) -> None:
        near, far = self.gain(20.0, 1.0, 0.0), self.gain(2000.0, 1.0, 0.0)
        assert near == pytest.approx(norm.pdf(160**0.5) / 403, rel=1e-3)
        assert 0 < far < near

    def test_no_distance_is_too_great(self) -> None:
        with np.errstate(over="raise", invalid="raise"):
            assert self.gain(-1e18, 1.0, 0.0) == pytest.approx(1e18, rel=1e-6)
            assert self.gain(1e18, 1.0, 0.0) == pytest.approx(0.0, abs=1e-30)


def threads() -> set[int]:
    np.linalg.inv(np.eye(2))
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_inside_linear_algebra_uses_the_calling_thread_alone() -> None:
    with threadpool_limits(2, user_api="blas"):
        outside = threads()
        with one_thread():
            assert threads() == {1}
        assert threads() == outside

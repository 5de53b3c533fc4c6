"""A Gaussian process over a pool of points, kept up to date one observation at a time.

Everything is numpy. What is observed enters before its value is known, since only the mean
depends on values: a point that is still being measured already lowers the variance around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from whet.learn.features import Points

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_ROOT5 = 5**0.5
_STEPS = 25
_SHORTEST, _LONGEST = np.log(0.05), np.log(20.0)
_LEAST_NOISE, _MOST_NOISE = np.log(1e-5), np.log(0.5)
_PRIOR_NOISE, _PRIOR_NOISE_DEVIATION = np.log(1e-3), 1.5
# The prior of the log length scales; points lie in the unit cube.
_PRIOR_LENGTH_SCALE, _PRIOR_LENGTH_SCALE_DEVIATION = np.log(1.2), 0.6


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """A length scale for each column, and the variance of the noise as a share of the signal's."""

    length_scales: Floats
    noise: float = 1e-3

    @classmethod
    def default(cls, columns: int) -> Hyperparameters:
        return cls(np.full(columns, np.exp(_PRIOR_LENGTH_SCALE)))


def matern(squared: Singles) -> Singles:
    """Matérn-5/2 of squared scaled distances."""
    r = np.sqrt(np.maximum(squared, 0)) * np.float32(_ROOT5)
    return np.asarray((1 + r + r * r / 3) * np.exp(-r), dtype=np.float32)


def fit_hyperparameters(
    points: Points, values: Floats, start: Hyperparameters, steps: int = _STEPS
) -> Hyperparameters:
    """The maximum a posteriori given standardised values.

    Sign-based steps on the gradient; the signal's variance is the best one for each candidate.
    """
    columns = points.shape[1]
    between = (points[:, None, :].astype(np.float64) - points[None, :, :]) ** 2
    squared_differences = np.ascontiguousarray(np.moveaxis(between, 2, 0))
    prior_mean = np.append(np.full(columns, _PRIOR_LENGTH_SCALE), _PRIOR_NOISE)
    prior_deviation = np.append(
        np.full(columns, _PRIOR_LENGTH_SCALE_DEVIATION), _PRIOR_NOISE_DEVIATION
    )
    theta = np.append(np.log(start.length_scales), np.log(start.noise))
    step, last_gradient = np.full(columns + 1, 0.3), np.zeros(columns + 1)
    best, best_theta = np.inf, theta
    for _ in range(steps):
        loss, gradient = _negative_log_likelihood(theta, squared_differences, values)
        loss += 0.5 * float((((theta - prior_mean) / prior_deviation) ** 2).sum())
        gradient += (theta - prior_mean) / prior_deviation**2
        if loss < best:
            best, best_theta = loss, theta
        if np.abs(gradient).max() < 0.05:
            break
        agreement = gradient * last_gradient
        factor = np.where(agreement > 0, 1.2, np.where(agreement < 0, 0.5, 1.0))
        step = np.clip(factor * step, 1e-3, 0.7)
        theta, last_gradient = theta - np.sign(gradient) * step, gradient
        theta[:-1] = np.clip(theta[:-1], _SHORTEST, _LONGEST)
        theta[-1] = np.clip(theta[-1], _LEAST_NOISE, _MOST_NOISE)
    return Hyperparameters(np.exp(best_theta[:-1]), float(np.exp(best_theta[-1])))


def _negative_log_likelihood(
    theta: Floats, squared_differences: Floats, values: Floats
) -> tuple[float, Floats]:
    """And its gradient in the logs of the length scales and of the noise."""
    n = len(values)
    weights, noise = np.exp(-2 * theta[:-1]), np.exp(theta[-1])
    r = np.sqrt(np.maximum(np.tensordot(weights, squared_differences, 1), 1e-12)) * _ROOT5
    decay = np.exp(-r)
    covariance = (1 + r + r * r / 3) * decay
    covariance[np.diag_indices(n)] += noise
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return np.inf, np.zeros_like(theta)
    inverse = np.linalg.inv(covariance)
    alpha = inverse @ values
    signal_variance = (float(values @ alpha) + 1) / (n + 1)
    loss = 0.5 * (n + 1) * np.log(signal_variance) + float(np.log(np.diag(factor)).sum())
    weight = inverse - np.outer(alpha, alpha) / signal_variance
    by_length = np.tensordot(squared_differences, weight * (5 / 6) * (1 + r) * decay, 2) * weights
    return loss, np.append(by_length, 0.5 * np.trace(weight) * noise)


class Posterior:
    """The posterior at every point of a pool, given which of them were observed.

    `rows` are the observed ones, in order; `predict` takes their values in that order.
    """

    def __init__(self, points: Points) -> None:
        self._points = points
        self.rows: list[int] = []
        self.reset(Hyperparameters.default(points.shape[1]), [])

    def reset(self, hyperparameters: Hyperparameters, rows: Sequence[int]) -> None:
        """Starts again with other hyperparameters or other observations."""
        self.hyperparameters = hyperparameters
        self._scaled = self._points / hyperparameters.length_scales.astype(np.float32)
        self._norms = np.einsum("ij,ij->i", self._scaled, self._scaled)
        self.rows = list(rows)
        n, capacity = len(rows), max(32, len(rows) + len(rows) // 2)
        # Of the observed with all points, whitened.
        self._cross_covariance = np.empty((capacity, len(self._points)), np.float32)
        self._inverse_cholesky = np.zeros((capacity, capacity))
        self._variance = np.ones(len(self._points), np.float32)
        if n:
            kernel = self._kernel(rows)
            covariance = kernel[:, rows].astype(np.float64)
            covariance[np.diag_indices(n)] = 1 + hyperparameters.noise
            inverse_cholesky = np.linalg.inv(np.linalg.cholesky(covariance))
            self._inverse_cholesky[:n, :n] = inverse_cholesky
            self._cross_covariance[:n] = inverse_cholesky.astype(np.float32) @ kernel
            whitened = self._cross_covariance[:n]
            self._variance -= np.einsum("ij,ij->j", whitened, whitened)

    def __len__(self) -> int:
        """How many points the pool has."""
        return len(self._points)

    def add(self, row: int) -> None:
        n = len(self.rows)
        if n == len(self._cross_covariance):
            self._grow()
        known = self._cross_covariance[:n, row].astype(np.float64)
        deviation = np.sqrt(max(1 + self.hyperparameters.noise - float(known @ known), 1e-6))
        column = self._kernel([row])[0] - known.astype(np.float32) @ self._cross_covariance[:n]
        column /= np.float32(deviation)
        self._cross_covariance[n] = column
        self._inverse_cholesky[n, :n] = -(known @ self._inverse_cholesky[:n, :n]) / deviation
        self._inverse_cholesky[n, n] = 1 / deviation
        self._variance -= column * column
        self.rows.append(row)

    def extend(self, points: Points) -> None:
        """Adds points to the pool, after those it has."""
        n, start = len(self.rows), len(self._points)
        self._points = np.vstack([self._points, points])
        scaled = points / self.hyperparameters.length_scales.astype(np.float32)
        self._scaled = np.vstack([self._scaled, scaled])
        self._norms = np.append(self._norms, np.einsum("ij,ij->i", scaled, scaled))
        kernel = self._kernel(self.rows, slice(start, None))
        cross_covariance = self._inverse_cholesky[:n, :n].astype(np.float32) @ kernel
        added = np.empty((len(self._cross_covariance), len(points)), np.float32)
        added[:n] = cross_covariance
        self._cross_covariance = np.hstack([self._cross_covariance, added])
        variance = 1 - np.einsum("ij,ij->j", cross_covariance, cross_covariance)
        self._variance = np.append(self._variance, variance.astype(np.float32))

    def predict(self, values: Floats) -> tuple[Singles, Singles]:
        """Mean and standard deviation at every point of the pool, in the units of `values`."""
        n = len(self.rows)
        shift, scale = float(values.mean()), float(values.std()) or 1.0
        whitened = self._inverse_cholesky[:n, :n] @ ((values - shift) / scale)
        signal_variance = (float(whitened @ whitened) + 1) / (n + 1)
        explained = (scale * whitened).astype(np.float32) @ self._cross_covariance[:n]
        signal_deviation = np.float32(scale * signal_variance**0.5)
        deviation = np.sqrt(np.maximum(self._variance, 1e-9)) * signal_deviation
        return np.asarray(np.float32(shift) + explained), np.asarray(deviation)

    def whitened(self, columns: Floats) -> Floats:
        """Columns over the observed rows, turned so that their errors are independent."""
        n = len(self.rows)
        result: Floats = self._inverse_cholesky[:n, :n] @ columns
        return result

    def _kernel(self, rows: Sequence[int], part: slice = slice(None)) -> Singles:
        there = self._scaled[list(rows)]
        squared = self._norms[list(rows)][:, None] - 2 * (there @ self._scaled[part].T)
        return matern(squared + self._norms[part][None])

    def _grow(self) -> None:
        n = len(self._cross_covariance)
        cross_covariance = np.empty((2 * n, self._cross_covariance.shape[1]), np.float32)
        cross_covariance[:n] = self._cross_covariance
        inverse_cholesky = np.zeros((2 * n, 2 * n))
        inverse_cholesky[:n, :n] = self._inverse_cholesky
        self._cross_covariance, self._inverse_cholesky = cross_covariance, inverse_cholesky


def expected_improvement(mean: Singles, deviation: Singles, best: float) -> Singles:
    """How far below `best` a point is expected to come, counting what is not below as 0."""
    z = (best - mean) / deviation
    # Bounded where single precision would end.
    square = np.minimum(z * z, np.float32(1e12))
    density = 0.3989422804 * np.exp(-0.5 * np.minimum(square, 160))
    # The normal distribution function to three digits, which needs no scipy; in the tail their
    # difference has none of them left, and there the first terms of a continued fraction do.
    below = 0.5 * (1 + np.tanh(0.7978845608 * z * (1 + 0.044715 * square)))
    gain: Singles = np.where(z < -2, density / (square + 3 - 6 / (square + 7)), z * below + density)
    return gain * deviation


def one_thread() -> AbstractContextManager[Any]:
    """Inside, BLAS uses the calling thread alone. A matrix of a few hundred rows that is shared
    among cores takes three times as long, and more where they are busy."""
    controller = _blas()
    return nullcontext() if controller is None else controller.limit(limits=1)


@cache
def _blas() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")

"""A Gaussian process over a pool of points, kept up to date one observation at a time.

Everything is numpy. What is observed enters before its value is known, since only the mean
depends on values: a point that is still being measured already lowers the doubt around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whet.learn.features import Points

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_ROOT5 = 5**0.5
_STEPS = 25
_SHORTEST, _LONGEST = np.log(0.05), np.log(20.0)
_LEAST_NOISE, _MOST_NOISE = np.log(1e-5), np.log(0.5)
_USUAL_NOISE, _NOISE_SPREAD = np.log(1e-3), 1.5
# What length scales are before anything is known; points lie in the unit cube.
_USUAL_LENGTH, _LENGTH_SPREAD = np.log(1.2), 0.6


@dataclass(frozen=True, eq=False)
class Scales:
    """How far an observation reaches along each column, and the noise as a share of the signal."""

    lengths: Floats
    noise: float = 1e-3

    @classmethod
    def usual(cls, columns: int) -> Scales:
        return cls(np.full(columns, np.exp(_USUAL_LENGTH)))


def matern(squared: Singles) -> Singles:
    """Matérn-5/2 of squared scaled distances."""
    r = np.sqrt(np.maximum(squared, 0)) * np.float32(_ROOT5)
    return np.asarray((1 + r + r * r / 3) * np.exp(-r), dtype=np.float32)


def fitted(points: Points, values: Floats, start: Scales, steps: int = _STEPS) -> Scales:
    """The most likely scales given standardised values, with the usual ones as a prior.

    Sign-based steps on the gradient; the signal's variance is the best one for each candidate.
    """
    columns = points.shape[1]
    between = (points[:, None, :].astype(np.float64) - points[None, :, :]) ** 2
    squares = np.ascontiguousarray(np.moveaxis(between, 2, 0))
    usual = np.append(np.full(columns, _USUAL_LENGTH), _USUAL_NOISE)
    spread = np.append(np.full(columns, _LENGTH_SPREAD), _NOISE_SPREAD)
    theta = np.append(np.log(start.lengths), np.log(start.noise))
    step, before = np.full(columns + 1, 0.3), np.zeros(columns + 1)
    best, best_theta = np.inf, theta
    for _ in range(steps):
        loss, slope = _loss(theta, squares, values)
        loss += 0.5 * float((((theta - usual) / spread) ** 2).sum())
        slope += (theta - usual) / spread**2
        if loss < best:
            best, best_theta = loss, theta
        if np.abs(slope).max() < 0.05:
            break
        turned = slope * before
        step = np.clip(np.where(turned > 0, 1.2, np.where(turned < 0, 0.5, 1.0)) * step, 1e-3, 0.7)
        theta, before = theta - np.sign(slope) * step, slope
        theta[:-1] = np.clip(theta[:-1], _SHORTEST, _LONGEST)
        theta[-1] = np.clip(theta[-1], _LEAST_NOISE, _MOST_NOISE)
    return Scales(np.exp(best_theta[:-1]), float(np.exp(best_theta[-1])))


def _loss(theta: Floats, squares: Floats, values: Floats) -> tuple[float, Floats]:
    """Minus the log likelihood and its slope in the logs of the lengths and of the noise."""
    n = len(values)
    weights, noise = np.exp(-2 * theta[:-1]), np.exp(theta[-1])
    r = np.sqrt(np.maximum(np.tensordot(weights, squares, 1), 1e-12)) * _ROOT5
    decay = np.exp(-r)
    covariance = (1 + r + r * r / 3) * decay
    covariance[np.diag_indices(n)] += noise
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return np.inf, np.zeros_like(theta)
    inverse = np.linalg.inv(covariance)
    weighed = inverse @ values
    variance = (float(values @ weighed) + 1) / (n + 1)
    loss = 0.5 * (n + 1) * np.log(variance) + float(np.log(np.diag(factor)).sum())
    pull = inverse - np.outer(weighed, weighed) / variance
    by_length = np.tensordot(squares, pull * (5 / 6) * (1 + r) * decay, 2) * weights
    return loss, np.append(by_length, 0.5 * np.trace(pull) * noise)


class Field:
    """The belief about every point of a pool, given which of them were observed.

    `rows` are the observed ones, in order; `posterior` takes their values in that order.
    """

    def __init__(self, points: Points) -> None:
        self._points = points
        self.rows: list[int] = []
        self.reset(Scales.usual(points.shape[1]), [])

    def reset(self, scales: Scales, rows: Sequence[int]) -> None:
        """Starts again with other scales or other observations."""
        self.scales = scales
        self._scaled = self._points / scales.lengths.astype(np.float32)
        self._norms = np.einsum("ij,ij->i", self._scaled, self._scaled)
        self.rows = list(rows)
        n, room = len(rows), max(32, len(rows) + len(rows) // 2)
        self._halves = np.empty((room, len(self._points)), np.float32)
        self._whiten = np.zeros((room, room))
        self._doubt = np.ones(len(self._points), np.float32)
        if n:
            kernel = self._kernel(rows)
            covariance = kernel[:, rows].astype(np.float64)
            covariance[np.diag_indices(n)] = 1 + scales.noise
            whiten = np.linalg.inv(np.linalg.cholesky(covariance))
            self._whiten[:n, :n] = whiten
            self._halves[:n] = whiten.astype(np.float32) @ kernel
            self._doubt -= np.einsum("ij,ij->j", self._halves[:n], self._halves[:n])

    def __len__(self) -> int:
        """How many points the pool has."""
        return len(self._points)

    def add(self, row: int) -> None:
        n = len(self.rows)
        if n == len(self._halves):
            self._grow()
        known = self._halves[:n, row].astype(np.float64)
        rest = np.sqrt(max(1 + self.scales.noise - float(known @ known), 1e-6))
        half = self._kernel([row])[0] - known.astype(np.float32) @ self._halves[:n]
        half /= np.float32(rest)
        self._halves[n] = half
        self._whiten[n, :n] = -(known @ self._whiten[:n, :n]) / rest
        self._whiten[n, n] = 1 / rest
        self._doubt -= half * half
        self.rows.append(row)

    def extend(self, points: Points) -> None:
        """Adds points to the pool, after those it has."""
        n, start = len(self.rows), len(self._points)
        self._points = np.vstack([self._points, points])
        scaled = points / self.scales.lengths.astype(np.float32)
        self._scaled = np.vstack([self._scaled, scaled])
        self._norms = np.append(self._norms, np.einsum("ij,ij->i", scaled, scaled))
        kernel = self._kernel(self.rows, slice(start, None))
        halves = self._whiten[:n, :n].astype(np.float32) @ kernel
        room = np.empty((len(self._halves), len(points)), np.float32)
        room[:n] = halves
        self._halves = np.hstack([self._halves, room])
        doubt = 1 - np.einsum("ij,ij->j", halves, halves)
        self._doubt = np.append(self._doubt, doubt.astype(np.float32))

    def posterior(self, values: Floats) -> tuple[Singles, Singles]:
        """Mean and standard deviation at every point of the pool, in the units of `values`."""
        n = len(self.rows)
        shift, scale = float(values.mean()), float(values.std()) or 1.0
        white = self._whiten[:n, :n] @ ((values - shift) / scale)
        variance = (float(white @ white) + 1) / (n + 1)
        mean = np.float32(shift) + (scale * white).astype(np.float32) @ self._halves[:n]
        deviation = np.sqrt(np.maximum(self._doubt, 1e-9)) * np.float32(scale * variance**0.5)
        return np.asarray(mean), np.asarray(deviation)

    def whitened(self, columns: Floats) -> Floats:
        """Columns over the observed rows, turned so that their errors are independent."""
        n = len(self.rows)
        result: Floats = self._whiten[:n, :n] @ columns
        return result

    def _kernel(self, rows: Sequence[int], part: slice = slice(None)) -> Singles:
        there = self._scaled[list(rows)]
        squared = self._norms[list(rows)][:, None] - 2 * (there @ self._scaled[part].T)
        return matern(squared + self._norms[part][None])

    def _grow(self) -> None:
        n = len(self._halves)
        halves = np.empty((2 * n, self._halves.shape[1]), np.float32)
        halves[:n] = self._halves
        whiten = np.zeros((2 * n, 2 * n))
        whiten[:n, :n] = self._whiten
        self._halves, self._whiten = halves, whiten

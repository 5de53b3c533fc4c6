"""When to stop taking samples of one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whet.measure.racing.stats import interval

Stop = Literal["precision", "samples", "time"]


@dataclass(frozen=True)
class Precision:
    """Ends when the median is known within ±`relative`, or at `max_samples` or `max_seconds`.

    `noise` is the relative noise of one sample, where it is known from elsewhere; without it the
    samples must speak for themselves, which takes at least six at 95 %.
    """

    relative: float = 0.01
    confidence: float = 0.95
    min_samples: int = 3
    max_samples: int = 100
    max_seconds: float | None = None
    noise: float | None = None

    def done(self, samples: Sequence[float], seconds: float) -> Stop | None:
        """Why no more samples are needed, or None."""
        if len(samples) >= self.min_samples:
            ends = interval(samples, self.confidence, self.noise)
            if ends is not None and ends[1] - ends[0] <= self.relative * (ends[0] + ends[1]):
                return "precision"
        if len(samples) >= self.max_samples:
            return "samples"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return "time"
        return None

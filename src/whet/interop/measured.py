"""What a file is written from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.core.config import Config
from whet.core.trial import Trial
from whet.core.workload import Workload


@dataclass(frozen=True)
class MeasuredWorkload:
    """A workload, its best, and the latest trial of each of its configs."""

    workload: Workload
    best: Trial
    trials: Sequence[Trial]

    def times(self) -> dict[Config, float]:
        """Nanoseconds of what may be compared with the best; of an untimed one, only that."""
        best = self.best.timing
        if best is None:
            return {self.best.config: 1.0}
        return {
            trial.config: trial.timing.median_ns
            for trial in self.trials
            if trial.status.measured
            and trial.timing is not None
            and trial.timing.median_ns > 0
            and trial.timing.taken_like(best)
        }

"""For whoever would rather have a good config soon than the best one later."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from whet.core.config import Config
from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.core.trial import Trial
from whet.learn.prior import Prior
from whet.search.gp import TwoViews
from whet.search.modelled import Floats

# A third of a short list, but at least and at most so many, far from one another, are measured
# before anything is left out.
FEWEST, MOST = 4, 8

# One in so many of the list, but at least and at most so many, has to be measured since the best
# was: who has just found a better one has not understood the kernel yet.
ONE_IN, LEAST_SINCE, MOST_SINCE = 6, 3, 8

# What a build must promise: this share of the kernel's time for the build time of the whole list,
# and a tenth of it for a tenth of that time. `benchmarks/effort.py`
# shows what more or less of it costs.
WORTH = 0.3

# Of larger spaces nobody builds more than this without a budget.
LIST = 200

# A process that has seen a handful of configs is too sure of itself, and a few failures say little
# of the next: taken at face value, both stop too soon.
DOUBT = 2.0
LEAST_CHANCE = 0.5

# Build times are guessed when so many are known, and no further from the usual than this, in log.
TIMED, LEAST_LOG, MOST_LOG = 3, -1.0, 1.5

# What a config takes besides: a worker, loading and measuring. It keeps the noise in very short
# builds from deciding anything.
BESIDE_S = 0.2

_RIDGE = 0.3


class Quick(TwoViews):
    """Asks for what promises most per second of building, until nothing is worth its build."""

    name = "quick"

    def __init__(self, space: Space, seed: int = 0, *, transfer: Prior | None = None) -> None:
        super().__init__(space, seed, transfer=transfer)
        self._build_logs: dict[int, float] = {}
        self._enough: bool | None = None
        self._waited = False

    @cached_property
    def starts(self) -> int:  # type: ignore[override]
        return min(MOST, max(FEWEST, -(-len(self._candidates) // 3)))

    @property
    def enough(self) -> bool:
        """Whether some are left, and neither these nor those being built are expected to pay."""
        if self._enough is None:
            self._enough = self._is_enough()
        return self._enough

    def _is_enough(self) -> bool:
        free = np.flatnonzero(self._candidates.free)
        left = np.array([*free, *self._pending], dtype=np.intp)
        if self._needed > 0 or not len(left):
            return False
        return float(self._appeal()[left].max()) < self._worth

    @property
    def _worth(self) -> float:
        return WORTH / min(len(self._candidates), LIST)

    @property
    def _needed(self) -> int:
        """How many more have to be measured before anything is left out."""
        since = min(MOST_SINCE, max(LEAST_SINCE, len(self._candidates) // ONE_IN))
        return max(self.starts - len(self._outcomes.logs), since - self._since_best())

    def _since_best(self) -> int:
        """Measured after the best was."""
        rows, best = list(self._outcomes.logs), self._outcomes.best_row
        return 0 if best is None else len(rows) - 1 - rows.index(best)

    def _asked(self, n: int) -> list[Config]:
        """No more than are needed or worth their builds: others may want the cores. Who asks twice
        and has nothing to tell in between gets one: some outcomes never come."""
        if self.enough:
            return []
        self._enough = None
        asked = super()._asked(min(n, max(0, self._needed - len(self._pending))))
        while len(asked) < n and len(self._outcomes.logs) >= self.starts:
            free = np.flatnonzero(self._candidates.free)
            if not len(free) or float(self._appeal()[free].max()) < self._worth:
                break
            asked += super()._asked(1)
        if not asked and self._waited:
            asked = super()._asked(min(n, 1))
        self._waited = not asked
        return asked

    def _told(self, trials: Sequence[Trial]) -> None:
        self._enough = None
        self._waited = self._waited and not trials
        for trial in trials:
            row = self._candidates.row(trial.config)
            seconds = trial.cost.work.get("build", 0.0)
            if row is not None and seconds > 0 and trial.status.measured:
                self._build_logs[row] = math.log(seconds + BESIDE_S)
        super()._told(trials)

    def _sensible(self, free: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """A list was made by somebody who knows the kernel: rules of thumb leave nothing out."""
        return free

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        return self._most(self._appeal(), free)

    def _appeal(self) -> Floats:
        """What each row is expected to gain, as a share of the best time so far, by how long its
        build is expected to take, in average ones."""
        chance = np.maximum(self._succeeding(), LEAST_CHANCE)
        return self._expected_gain(DOUBT) * chance / self._build_times()

    def _build_times(self) -> Floats:
        """By a ridge regression of the log on each parameter and its square."""
        if len(self._build_logs) < TIMED:
            return np.ones(len(self._candidates))
        logs = np.array(list(self._build_logs.values()))
        usual = float(np.median(logs))
        points = self._points[:, : self._features.plain].astype(np.float64) - 0.5
        rows = np.hstack([np.ones((len(points), 1)), points, points**2])
        seen = rows[list(self._build_logs)]
        penalty = np.full(rows.shape[1], _RIDGE)
        penalty[0] = 1e-9  # the level itself is not held back
        weights = np.linalg.solve(seen.T @ seen + np.diag(penalty), seen.T @ (logs - usual))
        times = np.exp(np.clip(rows @ weights, LEAST_LOG, MOST_LOG))
        return np.asarray(times / times.mean())

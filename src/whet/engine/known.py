"""What the store already knows of a workload, and what of it still holds."""

from __future__ import annotations

from dataclasses import dataclass

from whet.core.budget import Budget
from whet.core.run import Outcome, Run
from whet.core.space import Space
from whet.core.trial import LimitKind, Trial
from whet.store import Store

# A limit must rise by this much before what failed under the old one is tried again: limits that
# are derived from the machine (free memory) wobble from run to run.
RISE = 1.25

# Spaces up to this size are compared config by config; larger ones by their identity.
SMALL = 20_000


@dataclass(frozen=True)
class Knowledge:
    """`settled` trials need not be repeated. `incumbents` are those a newcomer must beat."""

    settled: dict[str, Trial]
    incumbents: tuple[Trial, ...]
    run: Run | None

    @classmethod
    def recall(
        cls, store: Store, workload_id: str, space: Space, limits: dict[LimitKind, float | None]
    ) -> Knowledge:
        settled = {
            trial.config.id: trial
            for trial in store.trials(workload_id)
            if trial.config in space and not _worth_retrying(trial, limits)
        }
        for run in store.runs(workload_id):
            if run.outcome is Outcome.FINISHED and run.best and run.best.id in settled:
                return cls(settled, (settled[run.best.id],), run)
        # Without a chosen best, whoever was measured may be it: what an outraced config lost
        # against need not be in this space.
        measured = [trial for trial in settled.values() if trial.status.measured]
        measured.sort(key=lambda trial: trial.median_ns or 0.0)
        return cls(settled, tuple(measured), None)

    def answers(self, space: Space, budget: Budget) -> bool:
        """True when a finished run has already done what is asked now."""
        if self.run is None or not self.incumbents:
            return False
        searched = self.run.space_id == space.id and not self.run.exhaustive
        return (searched and self.run.budget.covers(budget)) or self._knows_all(space)

    def _knows_all(self, space: Space) -> bool:
        return space.is_small(SMALL) and all(config.id in self.settled for config in space)


def _worth_retrying(trial: Trial, limits: dict[LimitKind, float | None]) -> bool:
    if trial.limit is None:
        return False
    now = limits.get(trial.limit.kind)
    return now is None or now > trial.limit.value * RISE

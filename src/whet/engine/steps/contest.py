"""Picks of several merged stores: measured on one occasion, or left undecided."""

from __future__ import annotations

from dataclasses import dataclass

from whet.core.trial import Trial
from whet.engine.steps.duel import Winner
from whet.engine.steps.record import Candidate, Recorder


@dataclass(frozen=True)
class Contest:
    """`picks` are those that stores disagree on, the one in use first; none where they agree."""

    picks: tuple[Trial, ...]
    recorder: Recorder

    @property
    def undecided(self) -> bool:
        """True while a pick has not been measured or failed in this run."""
        tried = {trial.config.id for trial in self.recorder.trials}
        return any(trial.config.id not in tried for trial in self.picks)

    def announce(self) -> None:
        if self.picks:
            self.recorder.note(
                "merged stores disagree on the fastest config; measuring their picks again, "
                f"side by side: {self._names}"
            )

    def judged(self, winner: Winner | None) -> Winner | None:
        """Without the time for all contested picks, nobody has won against the one in use."""
        if not self.undecided:
            return winner
        self.recorder.note(
            f"{self._names} are the picks of different stores, and there was no time to "
            "measure them side by side; nothing was decided, so tune again with a larger budget"
        )
        return self.in_use()

    def in_use(self) -> Winner | None:
        """The pick to go on with, unless it has just failed."""
        failed = {trial.config.id for trial in self.recorder.trials if trial.status.failed}
        for trial in self.picks:
            if trial.config.id not in failed:
                return Winner(Candidate(trial.config, order=0, stored=trial))
        return None

    @property
    def _names(self) -> str:
        return ", ".join(f"[{trial.config}]" for trial in self.picks)

"""What the events of a tuning add up to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from whet.core import event as happened
from whet.core.config import Config
from whet.core.event import Event
from whet.core.run import Run
from whet.core.trial import Trial

Clock = Callable[[], float]


class Tally:
    """What the events add up to so far. Not locked: whoever feeds it from threads locks."""

    def __init__(self, first: Config | None = None, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._status_of: dict[str, str] = {}
        self._new: set[str] = set()
        self.run: Run | None = None
        self.planned: int | None = None
        self.known = 0
        self.first = first
        self.first_ns: float | None = None
        self.best: Trial | None = None
        self.gains: list[tuple[float, float]] = []
        self.statuses: Counter[str] = Counter()
        self.building: dict[str, Config] = {}
        self.built = 0
        self.measuring: Config | None = None
        self.phase = "starting"
        self._began_waiting = False
        self._duel = "duel"

    def add(self, event: Event) -> None:
        match event:
            case happened.Waiting():
                self._began_waiting = True
                self.run, self.phase = event.run, f"{event.holder}; waiting"
            case happened.Waited():
                self.phase = "starting"
            case happened.RunStarted():
                if not self._began_waiting:  # the wait is part of the budget
                    self._started = self._clock()
                self.run, self.planned, self.known = event.run, event.planned, event.known
            case happened.BuildStarted():
                self.building[event.config.id] = event.config
                self.phase = "build"
            case happened.BuildFinished():
                self.building.pop(event.config.id, None)
                self.built += 1
            case happened.MeasureStarted():
                self.measuring = event.config
                if self.phase in ("starting", "build"):
                    self.phase = "first look"
            case happened.TrialFinished():
                self._finished(event.trial)
                if not event.known:
                    self._new.add(event.trial.config.id)
            case happened.BestChanged():
                self._improved(event.trial)
            case happened.RaceAdvanced():
                self.measuring = None
                self.phase = f"race: round {event.round} done, {event.left} may still win"
            case happened.DuelStarted():
                self.measuring = None
                with_first = len(event.rivals) == 2 and self.first in event.rivals
                self._duel = "duel with the first config" if with_first else "duel"
                of = "" if with_first else f" of the last {len(event.rivals)}"
                self.phase = f"{self._duel}{of}"
            case happened.DuelEnded():
                equal = f", tied with {len(event.equals)} more" if event.equals else ""
                self.phase = f"{self._duel} done after {event.rounds} rounds{equal}"
            case happened.RunFinished():
                self.phase = "done"
                self.measuring = None
                self.building.clear()

    def _finished(self, trial: Trial) -> None:
        before = self._status_of.get(trial.config.id)
        if before is not None:
            self.statuses[before] -= 1
        self._status_of[trial.config.id] = str(trial.status)
        self.statuses[str(trial.status)] += 1
        if self.measuring == trial.config:
            self.measuring = None
        if trial.config == self.first and trial.median_ns is not None:
            self.first_ns = trial.median_ns

    def _improved(self, trial: Trial) -> None:
        self.best = trial
        if trial.config == self.first:
            self.first_ns = trial.median_ns
        if trial.median_ns is not None:
            self.gains.append((self.elapsed, trial.median_ns))

    @property
    def done(self) -> int:
        return len(self._status_of)

    @property
    def space_text(self) -> str:
        """`62 of 132`: configs of the space with an outcome, earlier runs' included."""
        tried, size = self.known + len(self._new), None if self.run is None else self.run.space_size
        return f"{tried:,}" if size is None else f"{tried:,} of {size:,}"

    @property
    def goal(self) -> int | None:
        """How many trials there will be at most, where that is known."""
        limit = None if self.run is None else self.run.budget.trials
        bounds = [bound for bound in (self.planned, limit) if bound is not None]
        return max(self.done, min(bounds)) if bounds else None

    @property
    def elapsed(self) -> float:
        return self._clock() - self._started

    @property
    def seconds_left(self) -> float | None:
        if self.run is None or self.run.budget.seconds is None:
            return None
        return max(0.0, self.run.budget.seconds - self.elapsed)

    @property
    def speedup(self) -> float | None:
        best = None if self.best is None else self.best.median_ns
        return self.first_ns / best if best and self.first_ns else None

    @property
    def counts(self) -> str:
        return ", ".join(f"{n} {status}" for status, n in self.statuses.most_common() if n)

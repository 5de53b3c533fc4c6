"""What a person sees of a tuning while it runs, on stderr only."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from whet.cli.output import PAGE, count_text, ns_text, shorten, times_text, wrap
from whet.core import event as happened
from whet.core.config import Config
from whet.core.event import Event
from whet.core.run import Run
from whet.core.trial import Trial

Subscriber = Callable[[Event], None]
Clock = Callable[[], float]

_MARGIN = 9


class Tally:
    """What the events add up to so far. Not locked: whoever feeds it from threads locks."""

    def __init__(self, first: Config | None = None, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._status_of: dict[str, str] = {}
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

    def add(self, event: Event) -> None:
        match event:
            case happened.RunStarted():
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
            case happened.BestChanged():
                self._improved(event.trial)
            case happened.RaceAdvanced():
                self.measuring = None
                self.phase = f"race, round {event.round} over, {event.left} may still win"
            case happened.DuelStarted():
                self.measuring = None
                self.phase = f"duel of the last {len(event.rivals)}"
            case happened.DuelEnded():
                equal = f", equal to {len(event.equals)} more" if event.equals else ""
                self.phase = f"duel over after {event.rounds} rounds{equal}"
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


class PlainProgress:
    """One line for each thing worth knowing: the start, every new best, notes, counts, the end.

    Counts come every two seconds or tenth of the way, and more rarely the longer it takes, so that
    the log of a long tuning stays readable.
    """

    def __init__(
        self, stream: TextIO, first: Config | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._stream = stream
        self._tally = Tally(first, clock)
        self._lock = threading.Lock()
        self._counted_at = 0.0
        self._counted = 0
        self._count_said = ""
        self._left: int | None = None

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._tally.add(event)
            self._tell(event)

    def _tell(self, event: Event) -> None:
        tally = self._tally
        match event:
            case happened.RunStarted():
                self._say(f"tuning {event.run.workload}")
                self._say(f"{_plan(tally)}, search {event.run.search}, seed {event.run.seed}")
            case happened.BestChanged():
                speedup = (
                    "" if tally.speedup is None else f"  {times_text(tally.speedup)} the first"
                )
                self._say(f"best {ns_text(event.trial.median_ns)}{speedup}  {event.trial.config}")
            case happened.Noted():
                self._say(*wrap(f"note: {event.text}", PAGE - _MARGIN, indent=2))
            case happened.TrialFinished() | happened.BuildFinished():
                if self._count_is_due():
                    self._count()
            case happened.RaceAdvanced():
                if event.left != self._left:
                    self._say(tally.phase)
                self._left = event.left
            case happened.DuelEnded():
                self._say(tally.phase)
            case happened.RunFinished():
                if event.result.source == "stored":
                    self._say("the store had the answer")
                else:
                    self._count()

    def _count_is_due(self) -> bool:
        tally = self._tally
        waited = tally.elapsed - self._counted_at
        tenth = tally.goal is not None and tally.done - self._counted >= max(1, tally.goal / 10)
        return waited >= max(2.0, tally.elapsed / 20) or (tenth and waited >= 0.5)

    def _count(self) -> None:
        tally = self._tally
        self._counted_at, self._counted = tally.elapsed, tally.done
        count = count_text(tally.done, "trial")
        if tally.goal is not None:
            count = f"{tally.done}/{tally.goal} trials"
        built = f", {tally.built} built" if tally.built else ""
        detail = f": {tally.counts}" if tally.counts else ""
        text = f"{count}{built}{detail}"
        if text != self._count_said:
            self._count_said = text
            self._say(text)

    def _say(self, *lines: str) -> None:
        clock = f"{self._tally.elapsed:.1f}s"
        for number, line in enumerate(lines):
            start = f"{'' if number else clock:>{_MARGIN - 2}}  "
            self._stream.write(shorten(start + line, PAGE) + "\n")
        self._stream.flush()


def _plan(tally: Tally) -> str:
    planned = "an open number of configs"
    if tally.planned is not None:
        planned = count_text(tally.planned, "config")
    known = f" ({tally.known} known)" if tally.known else ""
    budget = tally.run.budget if tally.run is not None and tally.run.budget.bounded else "none"
    return f"{planned} to try{known}, budget {budget}"


@contextmanager
def progress(first: Config | None = None, *, quiet: bool = False) -> Iterator[Subscriber | None]:
    """A subscriber to hand to the engine: live on a terminal, plain lines elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from whet.cli.live import LiveProgress

        with LiveProgress(first) as live:
            yield live
    else:
        yield PlainProgress(sys.stderr, first)

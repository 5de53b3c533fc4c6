"""What a person sees of a tuning while it runs, on stderr only."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from whet.cli.terminal.output import (
    PAGE,
    count_text,
    ns_text,
    printable,
    seconds_text,
    shorten,
    times_text,
    wrap,
)
from whet.cli.terminal.tally import Clock, Tally
from whet.core import event as happened
from whet.core.config import Config
from whet.core.event import Event
from whet.core.shown import in_notebook

Subscriber = Callable[[Event], None]

_MARGIN = 9

# Hears of quiet tunings, where somebody has to know that they go on.
in_quiet: Subscriber | None = None


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
            case happened.Waiting():
                most = f"{event.holder}; waiting up to {seconds_text(event.most_s)}"
                self._say(*wrap(most, PAGE - _MARGIN, indent=2))
            case happened.Waited():
                self._say(f"waited {seconds_text(event.ended - event.started)}")
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
                    self._say("answered from the store")
                elif event.result.source == "tuned":
                    self._count()
                coverage = event.result.run.coverage
                for line in () if coverage is None else coverage.lines:
                    self._say(*wrap(line, PAGE - _MARGIN, indent=2))

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
            self._stream.write(shorten(printable(start + line), PAGE) + "\n")
        self._stream.flush()


def _plan(tally: Tally) -> str:
    planned = "an unknown number of configs"
    if tally.planned is not None:
        size = None if tally.run is None else tally.run.space_size
        of = f" of {size:,}" if size is not None and size > tally.planned else ""
        noun = "config" if (size or tally.planned) == 1 else "configs"
        planned = f"{tally.planned:,}{of} {noun}"
    known = f" ({tally.known:,} known)" if tally.known else ""
    budget = "none" if tally.run is None else tally.run.budget.text
    return f"{planned} to try{known}, budget {budget}"


@contextmanager
def progress(first: Config | None = None, *, quiet: bool = False) -> Iterator[Subscriber | None]:
    """A subscriber to hand to the engine: live in a notebook and on a terminal, plain lines
    elsewhere."""
    if quiet:
        yield in_quiet
    elif in_notebook() or (sys.stderr.isatty() and os.environ.get("TERM") != "dumb"):
        from whet.cli.terminal.live import LiveProgress

        with LiveProgress(first) as live:
            yield live
    else:
        yield PlainProgress(sys.stderr, first)

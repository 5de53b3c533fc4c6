"""The live display: a few lines that are redrawn in place while a tuning runs."""

from __future__ import annotations

import io
import math
import os
import sys
import threading
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from whet.cli.terminal.encoding import READABLE
from whet.cli.terminal.output import (
    PAGE,
    colour_wanted,
    ns_text,
    printable,
    seconds_text,
    shorten,
    times_text,
)
from whet.cli.terminal.tally import Tally
from whet.core import event as happened
from whet.core.config import Config
from whet.core.shown import in_notebook

if TYPE_CHECKING:
    from whet.core.event import Event

_SPARKS = "▁▂▃▄▅▆▇█"
_LABEL = 8

# Drawing takes time from the cores that measure: often enough to look alive after an event, and
# only for the clock when nothing happens.
_EVENT_S = 0.1
_CLOCK_S = 0.5


class _Terminal(io.TextIOBase):
    """Stderr without a lock: a child forked while the display writes must not inherit one."""

    def __init__(self, descriptor: int, encoding: str) -> None:
        self._descriptor = descriptor
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def write(self, text: str) -> int:
        data = text.encode(self._encoding, READABLE)
        while data:
            data = data[os.write(self._descriptor, data) :]
        return len(text)

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


class _TerminalScreen:
    def __init__(self) -> None:
        self._console = Console(
            file=_Terminal(sys.stderr.fileno(), sys.stderr.encoding),  # type: ignore[arg-type]
            force_terminal=True,
            no_color=not colour_wanted(sys.stderr),
            highlight=False,
        )
        # A redirected stdout would hand forked children the console's lock.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    @property
    def width(self) -> int:
        return self._console.width

    def show(self, notes: list[str], lines: list[Text]) -> None:
        for note in notes:
            self._console.print(f"note: {note}", style="yellow", markup=False)
        self._live.update(Text("\n").join(lines), refresh=True)

    def close(self) -> None:
        self._live.stop()


class _NotebookScreen:
    """The output of the cell that tunes: one place, redrawn. Notes stay there when it is over."""

    width = PAGE

    def __init__(self) -> None:
        display = import_module("IPython.display").display  # whoever is in a notebook has it
        self._place = display({"text/plain": ""}, raw=True, display_id=True)
        self._notes: list[str] = []

    def show(self, notes: list[str], lines: list[Text]) -> None:
        self._notes += [f"note: {note}" for note in notes]
        text = "\n".join([*self._notes, *(line.plain for line in lines)])
        self._place.update({"text/plain": text}, raw=True)

    def close(self) -> None:
        self.show([], [])


class LiveProgress:
    """Subscribes to events and draws from a thread of its own, so that the engine never waits."""

    def __init__(self, first: Config | None = None) -> None:
        self._tally = Tally(first)
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._over = threading.Event()
        self._notes: list[str] = []
        self._thread = threading.Thread(target=self._draw_until_over, name="whet-live", daemon=True)

    def __enter__(self) -> LiveProgress:
        self._screen: _NotebookScreen | _TerminalScreen
        self._screen = _NotebookScreen() if in_notebook() else _TerminalScreen()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._changed.set()
        self._thread.join()
        self._screen.close()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._tally.add(event)
            if isinstance(event, happened.Noted):
                self._notes.append(event.text)
        self._changed.set()

    def _draw_until_over(self) -> None:
        while not self._over.is_set():
            self._changed.wait(_CLOCK_S)
            self._changed.clear()
            self._draw()
            self._over.wait(_EVENT_S)
        self._draw()

    def _draw(self) -> None:
        with self._lock:
            notes, self._notes = self._notes, []
            lines = frame(self._tally, self._screen.width)
        self._screen.show(list(map(printable, notes)), lines)


def frame(tally: Tally, width: int) -> list[Text]:
    """The display as lines that fit `width`, up to a page."""
    width = min(width, PAGE)
    lines = [
        _title(tally),
        _bar(tally, width),
        *_best(tally),
        _gains(tally, width),
        _row("trials", " · ".join((tally.space_text, *filter(None, tally.counts.split(", "))))),
        _row("phase", tally.phase),
        _row("measure", "–" if tally.measuring is None else str(tally.measuring)),
        _row("build", _building(tally, width)),
    ]
    for line in lines:
        line.truncate(width - 1, overflow="ellipsis")
    return lines


def _row(label: str, body: str | Text, style: str = "") -> Text:
    line = Text(f"{label:<{_LABEL}}", style="dim", no_wrap=True)
    if isinstance(body, str):
        return line.append(printable(body), style=style or "not dim")
    return line.append(body)


def _title(tally: Tally) -> Text:
    text = "whet" if tally.run is None else str(tally.run.workload)
    return Text(printable(text), style="bold", no_wrap=True)


def _bar(tally: Tally, width: int) -> Text:
    goal = tally.goal
    count = f"{tally.done} trials" if goal is None else f"{tally.done}/{goal}"
    clock = _clock(tally.elapsed)
    if tally.seconds_left is not None:
        clock += f" · {_clock(tally.seconds_left)} left"
    cells = max(6, width - len(count) - len(clock) - 6)
    spent = 0.0
    if tally.run is not None and tally.run.budget.seconds:
        spent = tally.elapsed / tally.run.budget.seconds
    share = max(spent, tally.done / goal if goal else 0.0)
    full = min(cells, round(share * cells))
    line = Text(no_wrap=True)
    line.append("━" * full, style="green")
    line.append("─" * (cells - full), style="bright_black")
    return line.append(f"  {count}  ").append(clock, style="dim")


def _best(tally: Tally) -> list[Text]:
    if tally.best is None:
        return [_row("best", "–"), _row("", "")]
    numbers = Text(ns_text(tally.best.median_ns), style="bold green not dim")
    if tally.speedup is not None:
        first = ns_text(tally.first_ns)
        numbers.append(f"  {times_text(tally.speedup)} ", style="bold not dim")
        numbers.append(f"the first config's speed ({first})", style="not bold default not dim")
    return [_row("best", numbers), _row("", str(tally.best.config))]


def _gains(tally: Tally, width: int) -> Text:
    if not tally.gains:
        return _row("gains", "–")
    recent = tally.gains[-max(4, width // 3) :]
    last = _clock(tally.elapsed - recent[-1][0])
    line = Text(sparkline([ns for _, ns in recent]), style="cyan not dim")
    line.append(f"  {len(tally.gains)}, the last {last} ago", style="default not dim")
    return _row("gains", line)


def sparkline(values: list[float]) -> str:
    """One block a value, on a logarithmic scale: a halving looks the same wherever it happens."""
    logs = [math.log(max(value, 1e-9)) for value in values]
    low, high = min(logs), max(logs)
    if high == low:
        return _SPARKS[0] * len(values)
    top = len(_SPARKS) - 1
    return "".join(_SPARKS[round((value - low) / (high - low) * top)] for value in logs)


def _building(tally: Tally, width: int) -> str:
    if not tally.building:
        return "–"
    named = next(iter(tally.building.values()))
    more = f" and {len(tally.building) - 1} more" if len(tally.building) > 1 else ""
    return shorten(str(named), width - _LABEL - len(more) - 1) + more


def _clock(seconds: float) -> str:
    """Whole seconds: a display that is drawn again and again should not flicker."""
    return f"{seconds:.0f} s" if seconds < 59.5 else seconds_text(seconds)

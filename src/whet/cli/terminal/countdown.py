"""How far a long calculation has come and how long it will still take, on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from whet.cli.terminal.output import columns, shorten

# A terminal is written to no more often, and an estimate given no sooner.
REFRESH_S = 0.1
ESTIMATE_AFTER_S = 0.5
# Elsewhere a line comes after so long, then as often, and more rarely the longer it takes.
LINE_S = 10.0
LINE_SHARE = 0.25


class Countdown:
    """`12 of 880 tunings, about 40 s left`: called with what is finished and what there is, whose
    parts take about equally long. A line of its own on a terminal, seldom a line elsewhere."""

    def __init__(
        self,
        noun: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        part: str = "",
    ) -> None:
        self._noun = noun
        self._part = part
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = clock()
        self._said = self._began if not self._live else self._began - REFRESH_S

    def __call__(self, finished: int, every: int) -> None:
        now = self._clock()
        elapsed, silent = now - self._began, now - self._said
        if finished >= every:
            self._write("\r\033[K" if self._live else "")
            return
        if silent < (REFRESH_S if self._live else max(LINE_S, LINE_SHARE * elapsed)):
            return
        self._said = now
        text = f"{finished:,} of {every:,} {self._noun}"
        if elapsed >= ESTIMATE_AFTER_S:
            text += f", about {left_text(elapsed / finished * (every - finished))} left"
        room = columns() - len("whet: ") - len(text) - 3
        if self._part and room > 8:
            text = f"{shorten(self._part, room)}: {text}"
        line = shorten(f"whet: {text}", columns() - 1)
        self._write(f"\r{line}\033[K" if self._live else f"{line}\n")

    def _write(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._stream.flush()


def left_text(seconds: float) -> str:
    """As exact as a guess is: `7 s`, `40 s`, `1 min 20 s`, `12 min`, `2 h 05 min`."""
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    tens = 10 * round(seconds / 10)
    if tens < 60:
        return f"{max(10, tens)} s"
    if tens < 600:
        return f"{tens // 60} min" + (f" {tens % 60} s" if tens % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"

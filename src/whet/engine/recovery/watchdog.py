"""Notices that a run gets nowhere, says where it is stuck, and ends what can be ended."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field

from whet.builds.builder import Builder
from whet.core.config import Config
from whet.engine.recovery.marks import LaunchJournal
from whet.measure.bench.protocol import Bench

# How often the run is looked at, at most and at least.
EVERY_S = (0.01, 5.0)

# So many configs are named; of more it is said how many there are.
NAMED = 4

# What begins the line about a run that gets nowhere.
NO_PROGRESS = "no progress for"


@dataclass(frozen=True)
class Doing:
    """What the run is busy with: `measuring`, `building`. `allowed_s` is what that may take by
    its own limits, `remedy` what a person can do, and `end` what can be done about it here."""

    what: str
    configs: Callable[[], Sequence[Config]]
    allowed_s: float
    remedy: str
    end: Callable[[], None] | None = None
    since: float = 0.0
    at: float = field(default_factory=time.time)


class Watchdog:
    """Told what is done and what has happened, it speaks once for each thing that does not end.

    Nothing is wrong while something happens at least every `patience_s` seconds on top of what the
    thing under way may take; None never minds. `heard` says when the last event of the run was.
    `gave_up` is set when a build had to be left to itself.
    """

    def __init__(
        self,
        patience_s: float | None,
        tell: Callable[[str], None],
        heard: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gave_up = False
        self._patience_s = patience_s
        self._tell = tell
        self._heard = heard
        self._clock = clock
        self._sign = clock()
        self._doing: Doing | None = None
        self._spoken_of: Doing | None = None
        self._spoke_at = -1.0

    @contextmanager
    def doing(
        self,
        what: str,
        configs: Callable[[], Sequence[Config]],
        allowed_s: float,
        remedy: str,
        end: Callable[[], None] | None = None,
    ) -> Iterator[None]:
        before = self._doing
        self._sign = self._clock()
        self._doing = Doing(what, configs, allowed_s, remedy, end, since=self._sign)
        try:
            yield
        finally:
            self._doing = before
            self._sign = self._clock()

    def measuring(
        self, configs: Sequence[Config], allowed_s: float, bench: Bench, marking: LaunchJournal
    ) -> AbstractContextManager[None]:
        """A call of the bench. One in another process is ended by ending that; a kernel in this
        one cannot be, but the next run shall know whose it was."""
        if bench.in_process:
            remedy = (
                "a kernel in this process cannot be stopped; kill the process (pid "
                f"{os.getpid()}). The next run will know what was running; isolate=True "
                "measures in a separate process"
            )
            return self.doing("measuring", lambda: configs, allowed_s, remedy, marking.keep)
        remedy = "restarting the measuring process"
        return self.doing("measuring", lambda: configs, allowed_s, remedy, bench.end_call)

    def building(self, builder: Builder, allowed_s: float) -> AbstractContextManager[None]:
        remedy = "abandoning the unfinished builds and choosing among the others"

        def waited_for() -> list[Config]:
            return builder.building() or builder.waiting()

        return self.doing("building", waited_for, allowed_s, remedy, self._give_up)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Looks every now and then, from a thread of its own."""
        if self._patience_s is None:
            yield
            return
        over = threading.Event()
        least, most = EVERY_S
        pause = min(most, max(least, self._patience_s / 20))

        def look() -> None:
            while not over.wait(pause):
                # A watch that fails must not print over a tuning that works.
                with suppress(Exception):
                    self.check()

        thread = threading.Thread(target=look, name="whet watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _give_up(self) -> None:
        self.gave_up = True

    def check(self) -> None:
        """Speaks, and ends what can be ended, if nothing has happened for too long."""
        doing, now = self._doing, self._clock()
        sign = max(self._sign, self._heard())
        allowed = 0.0 if doing is None else doing.allowed_s
        if self._patience_s is None or now - sign <= allowed + self._patience_s:
            return
        if self._spoke_at == sign and self._spoken_of is doing:
            return
        self._spoken_of, self._spoke_at = doing, sign
        self._tell(_line(doing, now - sign))
        if doing is not None and doing.end is not None:
            doing.end()


def _line(doing: Doing | None, silent_s: float) -> str:
    if doing is None:
        return (
            f"{NO_PROGRESS} {silent_s:.0f} s: the search is still choosing, or a display or "
            "the store is blocking; Ctrl-C ends the run with the best so far"
        )
    since = time.strftime("%H:%M:%S", time.localtime(doing.at))
    return (
        f"{NO_PROGRESS} {silent_s:.0f} s: {doing.what} {_names(doing.configs())} since "
        f"{since}, with a limit of {doing.allowed_s:.3g} s; {doing.remedy}"
    )


def _names(configs: Sequence[Config]) -> str:
    named = ", ".join(f"[{config}]" for config in configs[:NAMED])
    more = len(configs) - NAMED
    return f"{named} and {more} more" if more > 0 else named

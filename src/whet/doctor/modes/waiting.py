"""Says how far a mode is that takes long: `max-autotune` may compile a large model for minutes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from whet.core.event import Event, MeasureStarted, TrialFinished

EVERY_S = 30.0

# What compilers leave in their caches for each kernel: for NVIDIA, for AMD, for a CPU.
_BINARIES = (".cubin", ".hsaco", ".so")


class Waiting:
    """Hears a trial's events, and between them speaks from a thread of its own. `caches` is where
    the modes have theirs, each in a folder of its name; it is asked while a mode is timed."""

    def __init__(
        self,
        progress: Callable[[str], None],
        caches: Callable[[], Path],
        every_s: float = EVERY_S,
    ) -> None:
        self._progress, self._caches, self._every_s = progress, caches, every_s
        self._under_way: tuple[str, float] | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._speaker = threading.Thread(target=self._speak, name="whet-waiting", daemon=True)

    def __enter__(self) -> Self:
        self._speaker.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._speaker.join()

    def heard(self, event: Event) -> None:
        if isinstance(event, MeasureStarted):
            self._now((str(event.config["mode"]), time.monotonic()))
        elif isinstance(event, TrialFinished):
            self._now(None)

    def _now(self, under_way: tuple[str, float] | None) -> None:
        with self._changed:
            self._under_way = under_way
            self._changed.notify()

    def _speak(self) -> None:
        with self._changed:
            while not self._closed:
                # Whoever is told of a change starts the clock anew.
                changed = self._changed.wait(self._every_s)
                if not changed and self._under_way is not None:
                    self._progress(self._said(*self._under_way))

    def _said(self, mode: str, since: float) -> str:
        said = f"{mode}: {time.monotonic() - since:.0f} s so far"
        compiled = kernels_in(self._caches() / mode)
        kernels = "1 kernel" if compiled == 1 else f"{compiled} kernels"
        return f"{said}, {kernels} compiled" if compiled else said


def kernels_in(folder: Path) -> int:
    """How many the compilers have left there; a folder may vanish meanwhile."""
    try:
        return sum(path.suffix in _BINARIES for path in folder.rglob("*"))
    except OSError:
        return 0

"""Locks between processes. The system releases them when their holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from whet.measure.timer import Reading, Runnable, Timer, Warm


@contextlib.contextmanager
def file_lock(path: Path, wait_s: float) -> Iterator[bool]:
    """Yields whether the lock was had within `wait_s` seconds.

    Where no file can be made (a read-only folder) there is nothing to agree on: it was had.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        yield True
        return
    try:
        yield _acquire(descriptor, wait_s)
    finally:
        # Closing alone would not do: a worker forked meanwhile has the descriptor too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _acquire(descriptor: int, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    pause = 0.001
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(0.05, 2 * pause)
        else:
            return True


_thread = threading.local()


class OneAtATime:
    """A timer that holds its GPU's lock while it measures: two processes that time on one device
    at once time each other. A hook that tunes another kernel meanwhile is in the same thread, and
    has the lock already."""

    def __init__(self, timer: Timer, path: Path, wait_s: float = 60.0) -> None:
        self._timer = timer
        self._path = path
        self._wait_s = wait_s

    @property
    def name(self) -> str:
        return self._timer.name

    def __getattr__(self, name: str) -> Any:
        """What a timer may have beyond the contract."""
        value = getattr(self._timer, name)
        return self._turn if name == "turn" else value

    def _turn(self, runs: Sequence[Runnable], warms: Sequence[Warm]) -> list[Reading]:
        with self._alone():
            readings: list[Reading] = self._timer.turn(runs, warms)  # type: ignore[attr-defined]
        return readings

    def warm(self, run: Runnable) -> Warm:
        with self._alone():
            return self._timer.warm(run)

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        with self._alone():
            return self._timer.measure(run, samples, warm)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        held: set[Path] = _thread.__dict__.setdefault("held", set())
        if self._path in held:
            yield
            return
        with file_lock(self._path, self._wait_s):
            held.add(self._path)
            try:
                yield
            finally:
                held.discard(self._path)

"""Processes of one host take turns. The system releases a lock when its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whet.core.run import Run
from whet.store import Store


@contextmanager
def turn(store: Store, run: Run, wait_s: float) -> Iterator[bool]:
    """Only one process at a time tunes the same for the same store; yields whether that was so
    within `wait_s` seconds. Whoever waited finds in the store what the other one wrote.

    Another space of the same workload does not wait. A store that is no file is nobody else's.
    """
    place = Path(store.location)
    if not place.is_file():
        yield True
        return
    name = f"{run.workload.id}-{run.space_id}.lock"
    with file_lock(place.parent / "locks" / name, wait_s) as had:
        yield had


@contextmanager
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

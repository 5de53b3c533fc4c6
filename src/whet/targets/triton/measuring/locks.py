"""One process at a time on one GPU."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whet.engine.turns.lock import file_lock

# How long another process may be on the GPU at once: one that takes longer hangs.
LONGEST_VISIT_S = 60.0

_thread = threading.local()


@dataclass(frozen=True)
class OneAtATime:
    """Called, it holds a GPU's lock: two processes that time on one device at once time each other.
    A hook that tunes another kernel meanwhile is in the same thread, and has the lock already.

    After `wait_s` seconds it goes on without: a disturbed timing is better than none.
    """

    path: Path
    wait_s: float

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        held: set[Path] = _thread.__dict__.setdefault("held", set())
        if self.path in held:
            yield
            return
        with file_lock(self.path, self.wait_s):
            held.add(self.path)
            try:
                yield
            finally:
                held.discard(self.path)

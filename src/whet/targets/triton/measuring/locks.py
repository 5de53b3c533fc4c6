"""One process at a time on one GPU."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whet.engine.turns.lock import file_lock

__all__ = ["OneAtATime", "file_lock"]

_thread = threading.local()


@dataclass(frozen=True)
class OneAtATime:
    """Called, it holds a GPU's lock: two processes that time on one device at once time each other.
    A hook that tunes another kernel meanwhile is in the same thread, and has the lock already."""

    path: Path
    wait_s: float = 60.0

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

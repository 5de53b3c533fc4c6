"""When this process may be forked, and when it must not be.

OpenBLAS ends its threads before a fork. A linear algebra call that is under way in another thread
then waits for them for ever, and the fork waits for the call.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

_lock = threading.RLock()


@contextlib.contextmanager
def no_forks() -> Iterator[None]:
    """Inside, workers that are asked for start a little later. For work that may call NumPy's
    linear algebra while builds are under way."""
    with _lock:
        yield


def _new_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)

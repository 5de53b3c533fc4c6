"""When this process may be forked, and when it must not be.

OpenBLAS ends its threads before a fork. A linear algebra call that is under way in another thread
then waits for them for ever, and the fork waits for the call.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager

_lock = threading.RLock()


def no_forks() -> AbstractContextManager[bool]:
    """Inside, workers that are asked for start a little later. For work that may call NumPy's
    linear algebra while builds are under way."""
    return _lock


def _new_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)

"""One lock for all stores of a process, held across every fork.

A fork therefore never happens in the midst of an operation: the child inherits stores that are
idle, and a lock that is free.
"""

from __future__ import annotations

import os
import threading

LOCK = threading.RLock()

os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)

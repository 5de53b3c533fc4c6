"""When a run starts, by a clock that people and servers set."""

from __future__ import annotations

import time

from whet.store import Store


def start_after(store: Store, workload_id: str) -> float:
    """Now, but not before any run of the workload that is stored already.

    A store has its newest run by when each started. A clock that was ahead once and has been set
    right would make the newest run the older one for years, and its choice nobody's.
    """
    stored = [run.started for run in store.runs(workload_id)]
    return max([time.time(), *stored])

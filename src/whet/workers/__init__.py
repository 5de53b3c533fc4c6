"""Killable processes: tasks in a pool, and objects that live in a session.

Names are imported when first used: a worker needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.workers.answers import (
        RemoteError,
        Reply,
        WorkerDied,
        WorkerNotStarted,
        WorkerTimeout,
    )
    from whet.workers.forking import no_forks
    from whet.workers.pool import Pool, open_pool
    from whet.workers.process import Mode, available_cores
    from whet.workers.session import Session
    from whet.workers.stages import stage
    from whet.workers.task import Kind, Task, TaskOutcome

_HOMES = {
    "Kind": "whet.workers.task",
    "Mode": "whet.workers.process",
    "TaskOutcome": "whet.workers.task",
    "Pool": "whet.workers.pool",
    "RemoteError": "whet.workers.answers",
    "Reply": "whet.workers.answers",
    "Session": "whet.workers.session",
    "Task": "whet.workers.task",
    "WorkerDied": "whet.workers.answers",
    "WorkerNotStarted": "whet.workers.answers",
    "WorkerTimeout": "whet.workers.answers",
    "available_cores": "whet.workers.process",
    "no_forks": "whet.workers.forking",
    "open_pool": "whet.workers.pool",
    "stage": "whet.workers.stages",
}

__all__ = [
    "Kind",
    "Mode",
    "Pool",
    "RemoteError",
    "Reply",
    "Session",
    "Task",
    "TaskOutcome",
    "WorkerDied",
    "WorkerNotStarted",
    "WorkerTimeout",
    "available_cores",
    "no_forks",
    "open_pool",
    "stage",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value

"""Killable processes: tasks in a pool, and objects that live in a session.

Names are imported when first used: a worker needs few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.core.lazy import lazily

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
    "Kind": "task",
    "Mode": "process",
    "TaskOutcome": "task",
    "Pool": "pool",
    "RemoteError": "answers",
    "Reply": "answers",
    "Session": "session",
    "Task": "task",
    "WorkerDied": "answers",
    "WorkerNotStarted": "answers",
    "WorkerTimeout": "answers",
    "available_cores": "process",
    "no_forks": "forking",
    "open_pool": "pool",
    "stage": "stages",
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

__getattr__ = lazily(__name__, _HOMES)

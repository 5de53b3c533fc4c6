"""Killable processes: tasks in a pool, and objects that live in a session."""

from whet.workers.answers import RemoteError, Reply, WorkerDied, WorkerTimeout
from whet.workers.forking import no_forks
from whet.workers.pool import Pool, available_cores, open_pool
from whet.workers.process import Mode
from whet.workers.session import Session
from whet.workers.stages import stage
from whet.workers.task import Kind, Outcome, Task

__all__ = [
    "Kind",
    "Mode",
    "Outcome",
    "Pool",
    "RemoteError",
    "Reply",
    "Session",
    "Task",
    "WorkerDied",
    "WorkerTimeout",
    "available_cores",
    "no_forks",
    "open_pool",
    "stage",
]

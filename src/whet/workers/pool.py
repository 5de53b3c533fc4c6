"""`Pool`: tasks in killable processes, several at once."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping

from whet.core.errors import UsageError
from whet.workers.dispatcher import Dispatcher, QueuedTask
from whet.workers.process import Mode, available_cores, check_mode, pack
from whet.workers.supervisor import close_at_exit, lease
from whet.workers.task import Kind, Task, TaskOutcome


class Pool:
    """Runs tasks in worker processes and hands each outcome out once. From `open_pool`.

    A thread of its own starts tasks, enforces their limits and collects results, so the work goes
    on while the caller does something else. A worker that dies, is killed, or whose task left
    processes running, goes with all its descendants and its folder.
    """

    def __init__(self, dispatcher: Dispatcher, mode: Mode) -> None:
        self._dispatcher = dispatcher
        self._mode = mode
        self._tickets = 0
        self._submitting = threading.Lock()
        self._finalizer = weakref.finalize(self, dispatcher.close)
        self._finalizer.atexit = False
        close_at_exit(self)

    def submit(self, task: Task, priority: int = 0) -> int:
        """Queues the task and returns its ticket. Lower priorities start first, then older ones."""
        payload: bytes | None = None
        refusal: TypeError | None = None
        if self._mode == "spawn":
            try:
                payload = pack((task.call, task.args), f"task '{task.name}'")
            except TypeError as problem:
                refusal = problem
        with self._submitting:
            self._tickets += 1
            ticket = self._tickets
        if refusal is None:
            self._dispatcher.submit(QueuedTask(priority, ticket, task, payload))
        else:
            now = time.monotonic()
            outcome = TaskOutcome(
                ticket, Kind.RAISED, error=str(refusal), exception=refusal, started=now, ended=now
            )
            self._dispatcher.refuse(outcome)
        return ticket

    def wait(self, timeout: float | None = None) -> list[TaskOutcome]:
        """What has finished, as soon as that is anything.

        Empty when `timeout` seconds have passed, or at once when nothing is pending.
        """
        return self._dispatcher.wait(timeout)

    @property
    def pending(self) -> int:
        """Tasks submitted whose outcome `wait` has not handed out."""
        return self._dispatcher.pending

    def running(self) -> tuple[int, ...]:
        """Tickets of the tasks that are being executed, oldest start first."""
        return self._dispatcher.running

    def cancel(self, ticket: int) -> None:
        """Drops or kills the task. Unless it has already finished, its outcome is `cancelled`."""
        self._dispatcher.cancel(ticket)

    def cancel_all(self) -> None:
        self._dispatcher.cancel(None)

    def limit(self, tickets: Iterable[int], limit_s: float | None) -> None:
        """Gives tasks another limit, counted from their start, whether they run already or wait."""
        self._dispatcher.limit(frozenset(tickets), limit_s)

    def reorder(self, priorities: Mapping[int, int]) -> None:
        """Gives tasks that wait another priority, by ticket."""
        self._dispatcher.reorder(dict(priorities))

    def close(self) -> None:
        """Kills everything, cleans up and drops the outcomes not yet handed out."""
        self._finalizer.detach()
        self._dispatcher.close()
        self._dispatcher.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_pool(
    jobs: int | None = None,
    mode: Mode | str = "spawn",
    on_start: Callable[[int], None] | None = None,
) -> Pool:
    """A pool of `jobs` workers, by default as many as there are cores to run on.

    With `mode="spawn"` they are fresh interpreters, started now and used again and again; tasks
    are pickled. With "fork" each task gets a copy of this process, so it may be a closure.
    `on_start` is called with each ticket that starts, from the pool's own thread.
    """
    checked = check_mode(mode)
    count = available_cores() if jobs is None else jobs
    if count < 1:
        raise UsageError(f"jobs is {count}; a pool needs at least 1")
    return Pool(Dispatcher(lease(), count, checked, on_start), checked)

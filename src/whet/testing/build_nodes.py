"""A machine that builds, as far as a pool of machines can tell: workers of this one."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Future
from typing import Self

from whet.engine.executors.ray_cluster import BuildHost
from whet.workers.task import Task, TaskOutcome


class WorkerNode:
    """Builds in spawned workers, which get a task as bytes. `built` are the labels of all tasks
    that it was given."""

    def __init__(self, name: str = "node", slots: int = 1) -> None:
        self.name = name
        self.slots = slots
        self.built: list[str] = []
        self._host = BuildHost(slots)

    def start(self, ticket: int, task: Task) -> Future[TaskOutcome]:
        self.built.append(task.label)
        done: Future[TaskOutcome] = Future()

        def build() -> None:
            try:
                done.set_result(self._host.build(ticket, pickle.dumps(task)))
            except Exception as problem:
                done.set_exception(problem)

        # A daemon: what a closed machine was asked for never ends.
        threading.Thread(target=build, daemon=True).start()
        return done

    def limit(self, ticket: int, limit_s: float | None) -> None:
        self._host.limit(ticket, limit_s)

    def cancel(self, ticket: int) -> None:
        self._host.cancel(ticket)

    def close(self) -> None:
        self._host.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

"""One pool for the builds of many workloads, which may begin before anybody waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from whet.workers.pool import open_pool
from whet.workers.process import Mode
from whet.workers.task import Kind, Task, TaskOutcome

# What nobody waits for yet comes after all that somebody does.
AHEAD = 1_000_000


class BuildPool(Protocol):
    """What a builder needs of a pool, wherever its workers are."""

    def submit(self, task: Task, priority: int = 0) -> int: ...

    def wait(self, timeout: float | None = None) -> list[TaskOutcome]: ...

    @property
    def pending(self) -> int: ...

    def running(self) -> tuple[int, ...]: ...

    def limit(self, tickets: Iterable[int], limit_s: float | None) -> None: ...

    def reorder(self, priorities: Mapping[int, int]) -> None: ...

    def cancel_all(self) -> None: ...

    def close(self) -> None: ...


class PoolSource(Protocol):
    """Gives each builder its view of a pool that outlives it."""

    def view(self, on_start: Callable[[int], None] | None = None) -> BuildPool: ...


@dataclass(eq=False)
class _SharedTask:
    """`owners` wait for its outcome; without any, it is kept until somebody asks. `started` is by
    `time.monotonic`."""

    ticket: int
    task: Task
    started: float | None = None
    owners: list[PoolView] = field(default_factory=list)
    outcome: TaskOutcome | None = None


class SharedPool:
    """A pool whose tasks are known by their identity: what is under way, or has ended and was not
    asked for, is not begun again. Each builder has a view of it. For all threads."""

    def __init__(self, jobs: int | None, mode: Mode | str = "fork") -> None:
        self._pool = open_pool(jobs, mode, on_start=self._started)
        self._news = threading.Condition()
        self._under_way: dict[int, _SharedTask] = {}
        self._known: dict[str, _SharedTask] = {}
        self._problem: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._hand_out, name="whet-shared", daemon=True)
        self._thread.start()

    def begin(self, task: Task, priority: int = 0) -> None:
        """Ahead of any run; lower priorities first, and all of them after what is asked for."""
        with self._news:
            if task.identity not in self._known:
                self._begin(task, AHEAD + priority)

    def view(self, on_start: Callable[[int], None] | None = None) -> PoolView:
        return PoolView(self, on_start)

    def outcome(self, identity: str) -> TaskOutcome | None:
        """Of what was begun and not asked for yet; None while it is under way."""
        with self._news:
            found = self._known.get(identity)
            return None if found is None else found.outcome

    def outstanding(self, identities: Iterable[str]) -> int:
        """How many of these are still under way."""
        with self._news:
            found = (self._known.get(identity) for identity in identities)
            return sum(one is not None and one.outcome is None for one in found)

    @property
    def idle(self) -> bool:
        """Whether fewer tasks are left than could run at once."""
        with self._news:
            return len(self._pool.running()) == len(self._under_way)

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Until the condition, which is looked at whenever a task has ended."""
        with self._news:
            return self._news.wait_for(
                lambda: condition() or self._closed or self._problem is not None, timeout
            )

    def running_s(self, identities: Iterable[str]) -> dict[str, float]:
        """How long those that run now have done so."""
        now = time.monotonic()
        with self._news:
            known = ((identity, self._known.get(identity)) for identity in identities)
            return {
                identity: now - one.started
                for identity, one in known
                if one is not None and one.started is not None and one.outcome is None
            }

    def give_up(self, identity: str) -> None:
        """Unless somebody waits for it."""
        with self._news:
            one = self._known.get(identity)
            if one is not None and one.outcome is None and not one.owners:
                self._forget(one)
                self._pool.cancel(one.ticket)

    def reorder(self, priorities: Mapping[str, int]) -> None:
        """Of what was begun ahead and waits, by identity."""
        with self._news:
            known = ((self._known.get(identity), n) for identity, n in priorities.items())
            places = {one.ticket: AHEAD + n for one, n in known if one and not one.owners}
        self._pool.reorder(places)

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._pool.close()
        self._thread.join()

    def __enter__(self) -> SharedPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, task: Task, priority: int) -> _SharedTask:
        one = _SharedTask(self._pool.submit(task, priority), task)
        self._under_way[one.ticket] = one
        if task.identity is not None:
            self._known[task.identity] = one
        self._news.notify_all()
        return one

    def _started(self, ticket: int) -> None:
        with self._news:  # it may start before it is written down
            one = self._under_way.get(ticket)
            owners = [] if one is None else list(one.owners)
            if one is not None:
                one.started = time.monotonic()
        for owner in owners:  # not under our lock, since they have locks of their own
            owner.started(ticket)

    def _hand_out(self) -> None:
        try:
            while True:
                with self._news:
                    self._news.wait_for(lambda: self._under_way or self._closed)
                    if self._closed:
                        return
                for outcome in self._pool.wait(None):
                    self._ended(outcome)
        except BaseException as problem:
            with self._news:
                self._problem = problem
                self._news.notify_all()

    def _ended(self, outcome: TaskOutcome) -> None:
        with self._news:
            one = self._under_way.pop(outcome.ticket)
            one.outcome = outcome
            for owner in one.owners:
                owner.finished.append(outcome)
            if one.owners or outcome.kind is Kind.CANCELLED:
                self._forget(one)
            self._news.notify_all()

    def _forget(self, one: _SharedTask) -> None:
        identity = one.task.identity
        if identity is not None and self._known.get(identity) is one:
            del self._known[identity]


class PoolView:
    """What one builder sees of a `SharedPool`: like a pool of its own."""

    def __init__(self, shared: SharedPool, on_start: Callable[[int], None] | None) -> None:
        self._shared = shared
        self._on_start = on_start
        self._mine: dict[int, _SharedTask] = {}
        self.finished: list[TaskOutcome] = []

    def started(self, ticket: int) -> None:
        if self._on_start is not None:
            self._on_start(ticket)

    def submit(self, task: Task, priority: int = 0) -> int:
        shared = self._shared
        with shared._news:
            known = None if task.identity is None else shared._known.get(task.identity)
            one = shared._begin(task, priority) if known is None else known
            one.owners.append(self)
            self._mine[one.ticket] = one
            if one.outcome is not None:
                self.finished.append(one.outcome)
                shared._forget(one)
                shared._news.notify_all()
        if known is not None and one.outcome is None:
            shared._pool.limit([one.ticket], task.limit_s)
            shared._pool.reorder({one.ticket: priority})
        return one.ticket

    def wait(self, timeout: float | None = None) -> list[TaskOutcome]:
        shared = self._shared
        with shared._news:
            shared._news.wait_for(
                lambda: self.finished or not self._mine or shared._problem or shared._closed,
                timeout,
            )
            if shared._problem is not None:
                raise RuntimeError("the worker pool failed") from shared._problem
            outcomes, self.finished = self.finished, []
            for outcome in outcomes:
                self._mine.pop(outcome.ticket, None)
        return outcomes

    @property
    def pending(self) -> int:
        return len(self._mine)

    def running(self) -> tuple[int, ...]:
        return tuple(ticket for ticket in self._shared._pool.running() if ticket in self._mine)

    def limit(self, tickets: Iterable[int], limit_s: float | None) -> None:
        self._shared._pool.limit([t for t in tickets if t in self._mine], limit_s)

    def reorder(self, priorities: Mapping[int, int]) -> None:
        self._shared._pool.reorder({t: n for t, n in priorities.items() if t in self._mine})

    def cancel_all(self) -> None:
        """What others wait for as well goes on without this one."""
        shared = self._shared
        with shared._news:
            ended = {outcome.ticket for outcome in self.finished}
            now = time.monotonic()
            for ticket, one in self._mine.items():
                if ticket in ended:
                    continue
                one.owners.remove(self)
                if not one.owners:
                    shared._forget(one)
                    shared._pool.cancel(ticket)
                self.finished.append(TaskOutcome(ticket, Kind.CANCELLED, started=now, ended=now))
            shared._news.notify_all()

    def close(self) -> None:
        self.cancel_all()
        with self._shared._news:
            self._mine.clear()
            self.finished.clear()

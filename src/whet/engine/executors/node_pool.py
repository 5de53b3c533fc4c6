"""One queue of builds for the workers of many machines, and builds whose first part runs here."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from whet.core.frozen import FrozenMap
from whet.engine.executors.protocol import SeatLostError
from whet.workers.pool import open_pool
from whet.workers.task import Kind, Rest, Stayed, Task, TaskOutcome, UnfitMachine

# A build that was lost with its machine so often is not the machines' fault.
TRIES = 3

# How long builds wait for a machine to join where none is left.
PATIENCE_S, LOOK_S = 30.0, 1.0


class BuildNode(Protocol):
    """A machine that builds. `slots` is how many at once."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> int: ...

    def start(self, ticket: int, task: Task) -> Future[TaskOutcome]:
        """The future ends in `SeatLostError` where the machine is gone."""

    def limit(self, ticket: int, limit_s: float | None) -> None: ...

    def cancel(self, ticket: int) -> None: ...


@dataclass(eq=False)
class _NodeTask:
    ticket: int
    task: Task
    priority: int
    view: NodePoolView
    node: str | None = None
    tries: int = 0
    cancelled: bool = False

    @property
    def place(self) -> tuple[int, int]:
        return self.priority, self.ticket


@dataclass(eq=False)
class _NodeState:
    node: BuildNode
    busy: dict[int, _NodeTask] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.node.slots - len(self.busy)


class NodePool:
    """Tasks go to whichever machine has most room, lower priorities first; what a machine was doing
    when it was lost goes to another. For all threads."""

    def __init__(
        self,
        patience_s: float = PATIENCE_S,
        on_unfit: Callable[[str, str], None] = lambda name, reason: None,
    ) -> None:
        """`on_unfit` hears of each machine that a build has refused, and why."""
        self._patience_s = patience_s
        self._on_unfit = on_unfit
        self._used_at = time.monotonic()
        self._news = threading.Condition(threading.RLock())
        self._nodes: dict[str, _NodeState] = {}
        self._tasks: dict[int, _NodeTask] = {}
        self._queue: list[tuple[tuple[int, int], _NodeTask]] = []
        self._tickets = 0
        self._closed = self._wanted = False
        # Builders are told of starts from another thread than the one in which they submit.
        self._thread = threading.Thread(target=self._dispatch, name="whet-nodes", daemon=True)
        self._thread.start()

    def view(
        self, on_start: Callable[[int], None] | None = None, patience_s: float | None = None
    ) -> NodePoolView:
        """With `patience_s`, its builds wait only so long for a machine to join."""
        return NodePoolView(self, on_start, self._patience_s if patience_s is None else patience_s)

    def add(self, node: BuildNode) -> None:
        with self._news:
            self._nodes[node.name] = _NodeState(node)
            self._wake()

    def remove(self, name: str) -> None:
        """What it was doing comes back by itself, when its futures end."""
        with self._news:
            self._nodes.pop(name, None)

    @property
    def slots(self) -> int:
        with self._news:
            return sum(state.node.slots for state in self._nodes.values())

    @property
    def under_way(self) -> dict[str, list[str]]:
        """What each machine is building, for people."""
        with self._news:
            return {
                name: [task.task.name for task in state.busy.values()]
                for name, state in self._nodes.items()
            }

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._queue.clear()
            self._nodes.clear()
            self._news.notify_all()

    def _give_up_where_deserted(self) -> None:
        """Ends what waits where no machine has been there for so long."""
        now = time.monotonic()
        if self._nodes:
            self._used_at = now
        else:
            waiting = [one for one in self._tasks.values() if one.node is None]
            for one in waiting:
                if now - self._used_at <= one.view.patience_s:
                    continue
                one.cancelled = True
                text = "no machine is left to build on; see whet store stats --ray ADDRESS"
                outcome = TaskOutcome(
                    one.ticket, Kind.NOT_STARTED, error=text, started=now, ended=now
                )
                self._hand_over(one, outcome)

    def _submit(self, task: Task, priority: int, view: NodePoolView) -> int:
        with self._news:
            self._tickets += 1
            one = _NodeTask(self._tickets, task, priority, view)
            self._tasks[one.ticket] = one
            view._mine.add(one.ticket)
            heapq.heappush(self._queue, (one.place, one))
            self._wake()
        return one.ticket

    def _wake(self) -> None:
        self._wanted = True
        self._news.notify_all()

    def _dispatch(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._wanted or self._closed)
                if self._closed:
                    return
                self._wanted = False
            self._fill()

    def _fill(self) -> None:
        """Starts what can be; the calls to other machines are made without the lock."""
        while True:
            with self._news:
                chosen = self._next()
                if chosen is None:
                    return
                state, one = chosen
                one.node = state.node.name
                state.busy[one.ticket] = one
            one.view._started(one.ticket)
            future = state.node.start(one.ticket, one.task)
            future.add_done_callback(partial(self._ended, one, state))

    def _next(self) -> tuple[_NodeState, _NodeTask] | None:
        free = [state for state in self._nodes.values() if state.free > 0]
        while self._queue and (self._queue[0][1].cancelled or self._queue[0][1].node is not None):
            heapq.heappop(self._queue)
        if not free or not self._queue or self._closed:
            return None
        state = max(free, key=lambda one: one.free / one.node.slots)
        return state, heapq.heappop(self._queue)[1]

    def _ended(self, one: _NodeTask, state: _NodeState, done: Future[TaskOutcome]) -> None:
        problem = done.exception()
        refused = ""
        with self._news:
            state.busy.pop(one.ticket, None)
            if one.cancelled or one.ticket not in self._tasks:
                pass
            elif problem is None and isinstance(done.result().exception, UnfitMachine):
                if self._nodes.pop(state.node.name, None) is not None:
                    refused = str(done.result().exception)
                one.node = None
                heapq.heappush(self._queue, (one.place, one))
            elif problem is None:
                self._hand_over(one, replace(done.result(), ticket=one.ticket))
            elif isinstance(problem, SeatLostError) and one.tries + 1 < TRIES:
                self._nodes.pop(state.node.name, None)
                one.tries, one.node = one.tries + 1, None
                heapq.heappush(self._queue, (one.place, one))
            else:
                now = time.monotonic()
                text = f"could not be built on another machine: {problem}"
                kind = Kind.NOT_STARTED if isinstance(problem, SeatLostError) else Kind.RAISED
                self._hand_over(
                    one, TaskOutcome(one.ticket, kind, error=text, started=now, ended=now)
                )
            self._wake()
        if refused:
            self._on_unfit(state.node.name, refused)

    def _hand_over(self, one: _NodeTask, outcome: TaskOutcome) -> None:
        del self._tasks[one.ticket]
        one.view.finished.append(outcome)

    def _cancel(self, ticket: int) -> None:
        one = self._tasks.pop(ticket, None)
        if one is None:
            return
        one.cancelled = True
        now = time.monotonic()
        one.view.finished.append(TaskOutcome(ticket, Kind.CANCELLED, started=now, ended=now))
        state = None if one.node is None else self._nodes.get(one.node)
        if state is not None:
            state.node.cancel(ticket)


class NodePoolView:
    """What one builder sees of a `NodePool`: like a pool of its own."""

    def __init__(
        self, pool: NodePool, on_start: Callable[[int], None] | None, patience_s: float
    ) -> None:
        self._pool = pool
        self._on_start = on_start
        self.patience_s = patience_s
        self._mine: set[int] = set()
        self.finished: list[TaskOutcome] = []

    def _started(self, ticket: int) -> None:
        if self._on_start is not None and ticket in self._mine:
            self._on_start(ticket)

    def submit(self, task: Task, priority: int = 0) -> int:
        return self._pool._submit(task, priority, self)

    def wait(self, timeout: float | None = None) -> list[TaskOutcome]:
        pool = self._pool
        end = None if timeout is None else time.monotonic() + timeout
        with pool._news:
            while not (self.finished or not self._mine or pool._closed):
                left = LOOK_S if end is None else min(LOOK_S, end - time.monotonic())
                if left <= 0:
                    break
                pool._news.wait(left)
                pool._give_up_where_deserted()
            outcomes, self.finished = self.finished, []
            self._mine.difference_update(outcome.ticket for outcome in outcomes)
        return outcomes

    @property
    def pending(self) -> int:
        return len(self._mine)

    def running(self) -> tuple[int, ...]:
        with self._pool._news:
            tasks = self._pool._tasks
            mine = sorted(ticket for ticket in self._mine if ticket in tasks)
            return tuple(ticket for ticket in mine if tasks[ticket].node is not None)

    def limit(self, tickets: Iterable[int], limit_s: float | None) -> None:
        with self._pool._news:
            for ticket in tickets:
                one = self._pool._tasks.get(ticket)
                if one is None or ticket not in self._mine or one.task.limit_s == limit_s:
                    continue
                one.task = replace(one.task, limit_s=limit_s)
                state = None if one.node is None else self._pool._nodes.get(one.node)
                if state is not None:
                    state.node.limit(ticket, limit_s)

    def reorder(self, priorities: Mapping[int, int]) -> None:
        pool = self._pool
        with pool._news:
            for ticket, priority in priorities.items():
                if ticket in pool._tasks and ticket in self._mine:
                    pool._tasks[ticket].priority = priority
            waiting = [one for one in pool._tasks.values() if one.node is None]
            pool._queue = [(one.place, one) for one in waiting]
            heapq.heapify(pool._queue)

    def cancel_all(self) -> None:
        with self._pool._news:
            for ticket in self._mine:
                self._pool._cancel(ticket)
            self._pool._news.notify_all()

    def close(self) -> None:
        self.cancel_all()
        with self._pool._news:
            self._mine.clear()
            self.finished.clear()


RELAY_S = 0.05


class DividedPool:
    """Gives each builder a view whose first parts run here, `jobs` at once, and whose rests go to
    the machines of `nodes`, or run here where there is none. `say` hears, once each, why something
    was built here."""

    def __init__(self, nodes: NodePool, jobs: int | None, say: Callable[[str], None]) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._say = say
        self._said: set[str] = set()

    def view(self, on_start: Callable[[int], None] | None = None) -> DividedView:
        return DividedView(self._nodes, self._jobs, self._say_once, on_start)

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


@dataclass(eq=False)
class _Divided:
    """A build. `place` is the pool that has it now, as which `number`; `so_far` is what came of
    its first part."""

    ticket: int
    task: Task
    priority: int
    place: _Place
    number: int = 0
    rest: Rest | None = None
    so_far: TaskOutcome | None = None
    cancelled: bool = False


class _Place:
    """A pool, and which of its tickets are whose."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.builds: dict[int, _Divided] = {}


class DividedView:
    """What one builder sees: like a pool of its own. Two threads pass builds on, whether or not
    the builder waits."""

    def __init__(
        self,
        nodes: NodePool,
        jobs: int | None,
        say: Callable[[str], None],
        on_start: Callable[[int], None] | None,
    ) -> None:
        self._nodes = nodes
        self._say = say
        self._on_start = on_start
        self._news = threading.Condition(threading.RLock())
        self._builds: dict[int, _Divided] = {}
        self._finished: list[TaskOutcome] = []
        self._tickets = 0
        self._closed = False
        self._problem: BaseException | None = None
        self._here = _Place(open_pool(jobs, "fork", on_start=self._started))
        self._there = _Place(nodes.view(patience_s=0.0))
        for place in (self._here, self._there):
            work = partial(self._collect, place)
            threading.Thread(target=work, name="whet-divided", daemon=True).start()

    def submit(self, task: Task, priority: int = 0) -> int:
        with self._news:
            self._tickets += 1
            one = _Divided(self._tickets, task, priority, self._here)
            self._builds[one.ticket] = one
            first = task if task.first is None else replace(task, call=task.first, first=None)
            self._put(one, self._here, first)
        return one.ticket

    def wait(self, timeout: float | None = None) -> list[TaskOutcome]:
        with self._news:
            self._news.wait_for(
                lambda: self._finished or not self._builds or self._closed or self._problem, timeout
            )
            if self._problem is not None:
                raise RuntimeError("the worker pool failed") from self._problem
            outcomes, self._finished = self._finished, []
            for outcome in outcomes:
                del self._builds[outcome.ticket]
        return outcomes

    @property
    def pending(self) -> int:
        return len(self._builds)

    def running(self) -> tuple[int, ...]:
        with self._news:
            found = [
                place.builds[number].ticket
                for place in (self._here, self._there)
                for number in place.pool.running()
                if number in place.builds
            ]
        return tuple(sorted(found))

    def limit(self, tickets: Iterable[int], limit_s: float | None) -> None:
        """For each of the two parts."""
        with self._news:
            for one in self._under_way(tickets):
                one.task = replace(one.task, limit_s=limit_s)
                one.place.pool.limit([one.number], limit_s)

    def reorder(self, priorities: Mapping[int, int]) -> None:
        with self._news:
            for one in self._under_way(priorities):
                one.priority = priorities[one.ticket]
            for place in (self._here, self._there):
                numbers = {number: one.priority for number, one in place.builds.items()}
                place.pool.reorder(numbers)

    def cancel_all(self) -> None:
        with self._news:
            for one in self._builds.values():
                one.cancelled = True
        for place in (self._here, self._there):  # not under our lock, since they have their own
            place.pool.cancel_all()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._builds.clear()
            self._finished.clear()
            self._news.notify_all()
        self._here.pool.close()
        self._there.pool.close()

    def _under_way(self, tickets: Iterable[int]) -> list[_Divided]:
        known = (self._builds.get(ticket) for ticket in tickets)
        return [one for one in known if one is not None and one.number in one.place.builds]

    def _put(self, one: _Divided, place: _Place, task: Task) -> None:
        one.place, one.number = place, place.pool.submit(task, one.priority)
        place.builds[one.number] = one
        self._news.notify_all()

    def _started(self, number: int) -> None:
        """From the pool's thread, which may be quicker than the one that submits."""
        with self._news:
            one = self._here.builds.get(number)
        if one is not None and one.rest is None and self._on_start is not None:
            self._on_start(one.ticket)

    def _collect(self, place: _Place) -> None:
        try:
            while not self._closed:
                with self._news:
                    self._news.wait_for(lambda: place.builds or self._closed)
                outcomes = place.pool.wait(None)
                if not outcomes:  # it is being closed
                    time.sleep(RELAY_S)
                for outcome in outcomes:
                    with self._news:
                        one = place.builds.pop(outcome.ticket, None)
                    if one is not None:
                        self._ended(one, outcome)
        except BaseException as problem:
            with self._news:
                self._problem = None if self._closed else problem
                self._news.notify_all()

    def _ended(self, one: _Divided, outcome: TaskOutcome) -> None:
        """One part of it."""
        if one.cancelled and not isinstance(outcome.value, Stayed):
            outcome = replace(outcome, kind=Kind.CANCELLED, value=None)
        elif isinstance(outcome.value, Rest):
            self._pass_on(one, outcome, outcome.value)
            return
        elif isinstance(outcome.value, Stayed):
            if outcome.value.why:
                self._say(outcome.value.why)
            outcome = replace(outcome, value=outcome.value.value)
        elif one.place is self._there and outcome.kind is Kind.NOT_STARTED:
            self._say("no other machine can build this; building on this machine")
            assert one.rest is not None
            self._build_rest(one, one.rest, self._here)
            return
        elif one.rest is not None and outcome.kind is Kind.DONE:
            outcome = _finished(one.rest, outcome)
        self._deliver(one, outcome)

    def _pass_on(self, one: _Divided, outcome: TaskOutcome, rest: Rest) -> None:
        one.so_far, one.rest = replace(outcome, value=None), rest
        self._build_rest(one, rest, self._there if self._nodes.slots else self._here)

    def _build_rest(self, one: _Divided, rest: Rest, place: _Place) -> None:
        with self._news:
            if one.cancelled:
                self._deliver(one, TaskOutcome(one.number, Kind.CANCELLED))
            elif not self._closed:
                self._put(one, place, _task_of(one, rest))

    def _deliver(self, one: _Divided, outcome: TaskOutcome) -> None:
        with self._news:
            if one.ticket in self._builds:
                self._finished.append(_joined(one, outcome))
            self._news.notify_all()


def _task_of(one: _Divided, rest: Rest) -> Task:
    """Without an identity: what it comes to is not what the whole task does."""
    return replace(one.task, call=rest.call, args=rest.args, identity=None, first=None)


def _finished(rest: Rest, outcome: TaskOutcome) -> TaskOutcome:
    try:
        return replace(outcome, value=rest.finish(outcome.value))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return replace(outcome, kind=Kind.RAISED, value=None, error=text, exception=error)


def _joined(one: _Divided, outcome: TaskOutcome) -> TaskOutcome:
    """Both parts as one."""
    first = one.so_far
    if first is None:
        return replace(outcome, ticket=one.ticket)
    stages = dict(first.stages)
    for name, seconds in outcome.stages.items():
        stages[name] = stages.get(name, 0.0) + seconds
    return replace(
        outcome,
        ticket=one.ticket,
        seconds=first.seconds + outcome.seconds,
        started=first.started,
        stages=FrozenMap(stages),
    )

"""Builds in two parts: the first in a fork of this process, the rest on other machines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from whet.core.frozen import FrozenMap
from whet.engine.executors.node_pool import NodePool
from whet.workers.pool import open_pool
from whet.workers.task import Kind, Rest, Stayed, Task, TaskOutcome

LOOK_S = 0.05


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
                    time.sleep(LOOK_S)
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

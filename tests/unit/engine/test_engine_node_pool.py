"""One queue of builds for many machines."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from whet.engine.executors.node_pool import NodePool
from whet.engine.executors.protocol import SeatLostError
from whet.workers.task import Kind, Task, TaskOutcome


class HandNode:
    """Does what the test says, when the test says so."""

    def __init__(self, name: str, slots: int = 1) -> None:
        self.name = name
        self.slots = slots
        self.at_work: dict[int, Future[TaskOutcome]] = {}
        self.labels: dict[int, str] = {}
        self.cancelled: list[int] = []
        self.limits: list[tuple[int, float | None]] = []
        self.started = threading.Condition()

    def start(self, ticket: int, task: Task) -> Future[TaskOutcome]:
        with self.started:
            self.at_work[ticket], self.labels[ticket] = Future(), task.label
            self.started.notify_all()
            return self.at_work[ticket]

    def limit(self, ticket: int, limit_s: float | None) -> None:
        self.limits.append((ticket, limit_s))

    def cancel(self, ticket: int) -> None:
        self.cancelled.append(ticket)

    def busy_with(self, many: int = 1) -> list[str]:
        with self.started:
            assert self.started.wait_for(lambda: len(self.at_work) >= many, 10)
            return [self.labels[ticket] for ticket in self.at_work]

    def finish(self, label: str) -> None:
        ticket = next(t for t, name in self.labels.items() if name == label and t in self.at_work)
        self.at_work.pop(ticket).set_result(TaskOutcome(ticket, Kind.DONE, value=label))

    def lose(self) -> None:
        while self.at_work:
            _, future = self.at_work.popitem()
            future.set_exception(SeatLostError(self.name, "gone"))


def task(label: str) -> Task:
    return Task(print, label=label)


@pytest.fixture
def pool() -> NodePool:
    return NodePool()


def test_every_machine_gets_as_much_as_it_has_room_for(pool: NodePool) -> None:
    small, large = HandNode("small"), HandNode("large", 2)
    pool.add(small)
    pool.add(large)
    view = pool.view()
    for label in "abcd":
        view.submit(task(label))
    assert len(small.busy_with(1)) == 1
    assert len(large.busy_with(2)) == 2
    assert len(view.running()) == 3
    large.finish(large.busy_with(2)[0])
    assert view.wait(10)[0].kind is Kind.DONE
    large.busy_with(2)
    assert view.pending == 3
    pool.close()


def test_lower_priorities_start_first_and_can_change(pool: NodePool) -> None:
    view = pool.view()
    tickets = {
        label: view.submit(task(label), priority)
        for label, priority in zip("abc", (3, 2, 1), strict=True)
    }
    view.reorder({tickets["a"]: 0})
    node = HandNode("one")
    pool.add(node)
    order = []
    for _ in "abc":
        [label] = node.busy_with()
        order.append(label)
        node.finish(label)
        view.wait(10)
    assert order == ["a", "c", "b"]
    pool.close()


def test_what_a_lost_machine_was_doing_goes_to_another(pool: NodePool) -> None:
    lost, other = HandNode("lost", 2), HandNode("other", 2)
    view = pool.view()
    pool.add(lost)
    view.submit(task("a"))
    view.submit(task("b"))
    lost.busy_with(2)
    lost.lose()
    pool.add(other)
    assert sorted(other.busy_with(2)) == ["a", "b"]
    assert pool.slots == 2
    for label in "ab":
        other.finish(label)
    done = [outcome.value for _ in range(2) for outcome in view.wait(10)]
    assert sorted(done) == ["a", "b"]
    assert view.pending == 0
    pool.close()


def test_a_build_that_is_lost_again_and_again_is_given_up(pool: NodePool) -> None:
    view = pool.view()
    view.submit(task("a"))
    for number in range(3):
        node = HandNode(str(number))
        pool.add(node)
        node.busy_with()
        node.lose()
    [outcome] = view.wait(10)
    assert outcome.kind is Kind.NOT_STARTED
    assert "another machine" in outcome.error
    pool.close()


def test_cancelled_builds_are_ended_where_they_run(pool: NodePool) -> None:
    node = HandNode("one")
    pool.add(node)
    view, beside = pool.view(), pool.view()
    ticket = view.submit(task("a"))
    view.submit(task("b"))
    node.busy_with()
    beside.submit(task("c"))
    view.cancel_all()
    kinds = [outcome.kind for outcome in view.wait(10)]
    assert kinds == [Kind.CANCELLED] * 2
    assert node.cancelled == [ticket]
    node.finish("a")
    assert node.busy_with() == ["c"]
    pool.close()


def test_limits_reach_builds_that_run(pool: NodePool) -> None:
    node = HandNode("one")
    pool.add(node)
    view = pool.view()
    ticket = view.submit(task("a"))
    node.busy_with()
    view.limit([ticket], 2.5)
    assert node.limits == [(ticket, 2.5)]
    pool.close()


def test_starts_are_told_from_another_thread(pool: NodePool) -> None:
    heard: list[int] = []
    told = threading.Event()

    def on_start(ticket: int) -> None:
        heard.append(ticket)
        told.set()

    held = threading.Lock()
    view = pool.view(on_start)
    pool.add(HandNode("one"))
    with held:
        ticket = view.submit(task("a"))
    assert told.wait(10)
    assert heard == [ticket]
    pool.close()


@pytest.mark.medium
def test_without_any_machine_builds_are_given_up_after_a_while() -> None:
    pool = NodePool(patience_s=0.1)
    view = pool.view()
    view.submit(task("a"))
    [outcome] = view.wait(10)
    assert outcome.kind is Kind.NOT_STARTED
    assert "no machine" in outcome.error
    assert view.pending == 0
    pool.close()


def test_waiting_ends_when_its_time_is_over(pool: NodePool) -> None:
    view = pool.view()
    view.submit(task("a"))
    assert view.wait(0.05) == []
    assert view.wait(0) == []
    assert view.pending == 1
    pool.close()

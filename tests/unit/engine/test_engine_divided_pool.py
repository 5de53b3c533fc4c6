"""Builds whose first part runs in a fork of this process and whose rest runs on other machines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from whet.engine.executors.node_pool import DividedPool, DividedView, NodePool
from whet.testing.build_nodes import WorkerNode
from whet.workers.task import Kind, Rest, Stayed, Task, TaskOutcome, UnfitMachine

pytestmark = [pytest.mark.medium, pytest.mark.timeout(120)]


@dataclass(frozen=True)
class Added:
    """Comes back with what the rest has found, which is how a test sees who did what."""

    first_pid: int

    def __call__(self, rest_pid: int) -> tuple[int, int, int]:
        return os.getpid(), self.first_pid, rest_pid


def whole() -> str:
    return "whole"


def first() -> Rest:
    return Rest(os.getpid, (), Added(os.getpid()))


def stays() -> Stayed:
    return Stayed("stayed", "this one has to stay here")


# Forks of this process have it, and other machines do not.
FORKED: list[bool] = []


def unfit_elsewhere() -> int:
    if not FORKED:
        raise UnfitMachine("compiler 1, not 2")
    return os.getpid()


def first_of_picky() -> Rest:
    return Rest(unfit_elsewhere, (), Added(os.getpid()))


def sleep_long(folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(60)


def first_of_long(folder: str) -> Rest:
    return Rest(sleep_long, (folder,), Added(os.getpid()))


def fail(value: Any) -> Any:
    raise ValueError(f"cannot place {type(value).__name__}")


def first_of_unplaceable() -> Rest:
    return Rest(os.getpid, (), fail)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def nodes(said: list[str]) -> Iterator[NodePool]:
    pool = NodePool(on_unfit=lambda name, reason: said.append(f"{name}: {reason}"))
    yield pool
    pool.close()


@pytest.fixture
def view(nodes: NodePool, said: list[str]) -> Iterator[DividedView]:
    made = DividedPool(nodes, 1, said.append).view()
    yield made
    made.close()


@pytest.fixture
def node(nodes: NodePool) -> Iterator[WorkerNode]:
    with WorkerNode() as made:
        nodes.add(made)
        yield made


def result_of(view: DividedView) -> TaskOutcome:
    [outcome] = view.wait(60)
    return outcome


def test_three_processes_have_their_part_in_it(view: DividedView, node: WorkerNode) -> None:
    ticket = view.submit(Task(whole, label="one", first=first))
    outcome = result_of(view)
    here, forked, elsewhere = outcome.value
    assert (outcome.ticket, outcome.kind) == (ticket, Kind.DONE)
    assert here == os.getpid()
    assert len({here, forked, elsewhere}) == 3
    assert node.built == ["one"]
    assert view.pending == 0


def test_without_another_machine_all_of_it_is_done_here(view: DividedView) -> None:
    view.submit(Task(whole, first=first))
    assert result_of(view).value[0] == os.getpid()


def test_what_has_no_parts_is_built_here(view: DividedView, node: WorkerNode) -> None:
    view.submit(Task(whole))
    assert result_of(view).value == "whole"
    assert not node.built


def test_why_something_stays_is_said_once(
    view: DividedView, node: WorkerNode, said: list[str]
) -> None:
    for _ in range(2):
        view.submit(Task(whole, first=stays))
        assert result_of(view).value == "stayed"
    assert said == ["this one has to stay here"]
    assert not node.built


def test_a_machine_that_is_refused_is_named_and_the_work_done_here(
    view: DividedView,
    nodes: NodePool,
    node: WorkerNode,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FORKED", [True])
    view.submit(Task(whole, first=first_of_picky))
    assert result_of(view).kind is Kind.DONE
    assert said[0] == "node: compiler 1, not 2"
    assert nodes.slots == 0


def test_what_cannot_be_put_together_is_a_failure_of_the_build(
    view: DividedView, node: WorkerNode
) -> None:
    view.submit(Task(whole, first=first_of_unplaceable))
    outcome = result_of(view)
    assert outcome.kind is Kind.RAISED
    assert outcome.error == "ValueError: cannot place int"


def test_a_limit_holds_for_the_rest_too(
    view: DividedView, node: WorkerNode, tmp_path: Path
) -> None:
    ticket = view.submit(Task(whole, (str(tmp_path),), first=first_of_long))
    _wait_for_file(tmp_path)
    assert view.running() == (ticket,)
    view.limit([ticket], 0.1)
    outcome = result_of(view)
    assert (outcome.kind, outcome.limit_s) == (Kind.TIMED_OUT, 0.1)


def test_cancelling_ends_both_parts(view: DividedView, node: WorkerNode, tmp_path: Path) -> None:
    tickets = {view.submit(Task(whole, (str(tmp_path),), first=first_of_long)) for _ in range(3)}
    _wait_for_file(tmp_path)
    view.cancel_all()
    ended: list[TaskOutcome] = []
    while view.pending:
        ended += view.wait(60)
    assert {one.ticket for one in ended} == tickets
    assert {one.kind for one in ended} == {Kind.CANCELLED}
    view.submit(Task(whole, first=first))
    assert result_of(view).kind is Kind.DONE  # the machine is free again


def test_rests_are_passed_on_while_nobody_waits(view: DividedView, node: WorkerNode) -> None:
    for _ in range(3):
        view.submit(Task(whole, first=first))
    end = time.monotonic() + 60
    while len(node.built) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(node.built) == 3


def test_the_builder_hears_of_each_start_once(nodes: NodePool, node: WorkerNode) -> None:
    started: list[int] = []
    view = DividedPool(nodes, 1, print).view(started.append)
    tickets = [view.submit(Task(whole, first=first)) for _ in range(2)]
    while view.pending:
        view.wait(60)
    assert sorted(started) == tickets
    view.close()


def _wait_for_file(folder: Path) -> None:
    end = time.monotonic() + 60
    while not list(folder.iterdir()) and time.monotonic() < end:
        time.sleep(0.01)
    assert list(folder.iterdir())

"""What can be changed about a task after it was submitted, and where it ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_tasks as tasks

from whet.workers.pool import Pool, open_pool
from whet.workers.task import Kind, Task, TaskOutcome

pytestmark = pytest.mark.medium


@pytest.fixture(params=["spawn", "fork"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with open_pool(2, request.param) as opened:
        yield opened


def all_of(pool: Pool) -> dict[int, TaskOutcome]:
    outcomes: dict[int, TaskOutcome] = {}
    while pool.pending:
        outcomes |= {outcome.ticket: outcome for outcome in pool.wait(None)}
    return outcomes


def until_running(pool: Pool, *tickets: int) -> None:
    while not set(tickets) <= set(pool.running()):
        pool.wait(0.01)


def test_a_running_task_can_be_given_less_time(pool: Pool, tmp_path: Path) -> None:
    never = tmp_path / "never"
    hurried = pool.submit(Task(tasks.wait_for, (never,), limit_s=60.0))
    gate = tmp_path / "gate"
    spared = pool.submit(Task(tasks.wait_for, (gate,), limit_s=60.0))
    until_running(pool, hurried, spared)
    pool.limit([hurried], 0.05)
    (late,) = pool.wait(None)
    gate.touch()
    outcomes = all_of(pool)
    assert (late.ticket, late.kind, late.limit_s) == (hurried, Kind.TIMED_OUT, 0.05)
    assert late.error.startswith("was still running after 0.05 s and was killed")
    assert (outcomes[spared].kind, outcomes[spared].limit_s) == (Kind.DONE, None)


def test_a_waiting_task_can_be_given_less_time_or_more(pool: Pool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    blocking = [pool.submit(Task(tasks.wait_for, (gate,))) for _ in range(2)]
    until_running(pool, *blocking)
    less = pool.submit(Task(tasks.wait_for, (tmp_path / "never",), limit_s=60.0))
    more = pool.submit(Task(tasks.add, (1, 1), limit_s=1e-9))
    pool.limit([less], 0.05)
    pool.limit([more], None)
    gate.touch()
    outcomes = all_of(pool)
    assert outcomes[less].kind is Kind.TIMED_OUT
    assert outcomes[more].value == 2


def test_tasks_that_run_at_once_have_different_places(pool: Pool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    tickets = [pool.submit(Task(tasks.wait_for, (gate,))) for _ in range(2)]
    until_running(pool, *tickets)
    gate.touch()
    assert {outcome.worker for outcome in all_of(pool).values()} == {0, 1}


def test_a_place_is_taken_again_by_who_comes_next(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with open_pool(2, "fork") as pool:
        staying = pool.submit(Task(tasks.wait_for, (gate,)))
        until_running(pool, staying)
        for _ in range(3):
            pool.submit(Task(tasks.add, (1, 1)))
            (passing,) = pool.wait(None)
            assert passing.worker == 1
        gate.touch()
        assert all_of(pool)[staying].worker == 0


def test_waiting_tasks_start_by_their_latest_priority(tmp_path: Path) -> None:
    started: list[int] = []
    gate = tmp_path / "gate"
    with open_pool(1, "fork", on_start=started.append) as pool:
        first = pool.submit(Task(tasks.wait_for, (gate,)))
        until_running(pool, first)
        one, two, three = (pool.submit(Task(tasks.add, (1, 1)), priority=p) for p in (1, 2, 3))
        pool.reorder({three: 0, one: 9})
        gate.touch()
        all_of(pool)
    assert started == [first, three, two, one]

"""What becomes of a task: the same in both kinds of worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_tasks as tasks

from whet.core.errors import ConfigFailure
from whet.core.status import Limit, Status
from whet.workers.pool import Pool, open_pool
from whet.workers.task import Kind, Task, TaskOutcome


@pytest.fixture(scope="module", params=["spawn", "fork"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with open_pool(2, request.param) as opened:
        yield opened


@pytest.mark.medium
def test_a_task_returns_its_value(pool: Pool) -> None:
    before = time.monotonic()
    (outcome,) = tasks.run(pool, Task(tasks.add, (2, 3)))
    assert (outcome.kind, outcome.value, outcome.error) == (Kind.DONE, 5, "")
    assert before <= outcome.started <= outcome.ended <= time.monotonic()
    assert 0 <= outcome.seconds <= outcome.ended - outcome.started


@pytest.mark.medium
def test_values_of_many_megabytes_go_both_ways(pool: Pool) -> None:
    big = os.urandom(5_000_000)
    (outcome,) = tasks.run(pool, Task(bytes.join, (b"", [big, big])))
    assert outcome.value == big + big


def test_an_exception_arrives_as_itself(pool: Pool) -> None:
    (outcome,) = tasks.run(pool, Task(tasks.fail, ("no such tile",)))
    assert outcome.kind is Kind.RAISED
    assert isinstance(outcome.exception, ValueError)
    assert outcome.error == "ValueError: no such tile"


def test_a_config_failure_keeps_its_status_and_limit(pool: Pool) -> None:
    (outcome,) = tasks.run(pool, Task(tasks.refuse_config))
    assert isinstance(outcome.exception, ConfigFailure)
    assert outcome.exception.status is Status.RESOURCES
    assert outcome.exception.limit == Limit("memory_bytes", 4096.0)


def test_an_exception_that_cannot_be_sent_is_described(pool: Pool) -> None:
    (outcome,) = tasks.run(pool, Task(tasks.raise_unsendable))
    assert (outcome.kind, outcome.exception) == (Kind.RAISED, None)
    assert outcome.error == "Unsendable: holds a lock"


def test_a_result_that_cannot_be_sent_is_an_error_that_says_so(pool: Pool) -> None:
    (outcome,) = tasks.run(pool, Task(tasks.return_lock))
    assert outcome.kind is Kind.RAISED
    assert "of type lock" in outcome.error


@pytest.mark.medium
@pytest.mark.parametrize("how", [SystemExit, KeyboardInterrupt])
def test_a_task_that_tries_to_leave_only_fails(pool: Pool, how: type[BaseException]) -> None:
    left, after = tasks.run(pool, Task(tasks.leave, (how,)), Task(tasks.add, (1, 1)))
    assert left.kind is Kind.RAISED
    assert left.error == f"{how.__name__}: 3"
    assert after.value == 2


@pytest.mark.medium
def test_death_by_signal_names_the_signal_and_quotes_the_last_words(pool: Pool) -> None:
    (outcome,) = tasks.run(pool, Task(tasks.segfault, ("cc1: internal error\n",)))
    assert (outcome.kind, outcome.signal) == (Kind.DIED, signal.SIGSEGV)
    assert outcome.error.endswith("SIGSEGV\ncc1: internal error")


def test_a_sudden_exit_names_the_code(pool: Pool) -> None:
    (outcome,) = tasks.run(pool, Task(os._exit, (3,)))
    assert (outcome.kind, outcome.signal) == (Kind.DIED, None)
    assert "code 3" in outcome.error


@pytest.mark.medium
def test_a_worker_that_hangs_up_but_lives_is_ended(pool: Pool) -> None:
    outcome, after = tasks.run(pool, Task(os.closerange, (3, 256)), Task(tasks.add, (1, 1)))
    assert outcome.kind is Kind.DIED
    assert after.value == 2


@pytest.mark.medium
def test_a_task_that_forks_and_returns_twice_has_one_outcome(pool: Pool) -> None:
    outcome, after = tasks.run(pool, Task(tasks.fork_and_return), Task(tasks.add, (1, 1)))
    assert outcome.kind is Kind.DONE
    assert after.value == 2


@pytest.mark.medium
def test_a_garbled_answer_ends_the_worker_and_not_the_pool(pool: Pool) -> None:
    outcome, after = tasks.run(pool, Task(tasks.babble), Task(tasks.add, (1, 1)))
    assert outcome.kind is Kind.DIED
    assert "invalid answer" in outcome.error
    assert after.value == 2


@pytest.mark.medium
def test_passing_the_time_limit_kills_the_whole_tree(pool: Pool, tmp_path: Path) -> None:
    for limit_s in tasks.long_enough(tmp_path):
        ticket = pool.submit(Task(tasks.hang_with_children, (tmp_path,), limit_s))
        (outcome,) = pool.wait(None)
    assert (outcome.ticket, outcome.kind) == (ticket, Kind.TIMED_OUT)
    assert f"after {limit_s:g} s" in outcome.error
    assert outcome.seconds >= limit_s
    assert [pid for pid in tasks.pids_in(tmp_path) if tasks.alive(pid)] == []


@pytest.mark.medium
def test_what_a_crashed_task_started_is_killed(pool: Pool, tmp_path: Path) -> None:
    (outcome,) = tasks.run(pool, Task(tasks.spawn_and_crash, (tmp_path,)))
    assert outcome.signal == signal.SIGSEGV
    (child,) = tasks.pids_in(tmp_path)
    assert not tasks.alive(child)


@pytest.mark.medium
def test_what_a_finished_task_left_running_is_killed(pool: Pool) -> None:
    outcome, after = tasks.run(pool, Task(tasks.leave_a_child_running), Task(tasks.add, (1, 1)))
    assert outcome.kind is Kind.DONE
    assert [pid for pid in outcome.value if tasks.alive(pid)] == []
    assert after.value == 2


@pytest.mark.medium
def test_the_memory_limit_raises_memory_error_and_ends_with_the_task(pool: Pool) -> None:
    greedy = tasks.run(pool, *[Task(tasks.allocate, (300 << 20,), memory_bytes=100 << 20)] * 2)
    assert [type(outcome.exception) for outcome in greedy] == [MemoryError, MemoryError]
    free = tasks.run(pool, *[Task(tasks.allocate, (300 << 20,))] * 2)
    assert [outcome.kind for outcome in free] == [Kind.DONE, Kind.DONE]


@pytest.mark.medium
def test_output_is_kept_from_the_terminal_and_quoted_in_errors(
    pool: Pool, capfd: pytest.CaptureFixture[str]
) -> None:
    (outcome,) = tasks.run(pool, Task(tasks.print_everywhere))
    assert outcome.error.splitlines() == [
        "ValueError: after printing",
        "from Python",
        "to stderr",
        "from a child",
        "its error",
    ]
    assert capfd.readouterr() == ("", "")


def test_a_worker_has_its_own_folder_session_and_no_input(pool: Pool) -> None:
    (outcome,) = tasks.run(pool, Task(tasks.surroundings))
    seen = outcome.value
    assert seen["cwd"] == seen["TMPDIR"] == seen["tempfile"] != os.getcwd()
    assert seen["stdin"] == os.devnull
    assert seen["session"] == seen["pid"]
    assert seen["files"] == []


@pytest.mark.medium
def test_cancelling_everything_leaves_a_pool_that_works(pool: Pool, tmp_path: Path) -> None:
    blocked = [pool.submit(Task(tasks.wait_for, (tmp_path / "never",))) for _ in range(5)]
    pool.cancel_all()
    outcomes: list[TaskOutcome] = []
    while pool.pending:
        outcomes += pool.wait(None)
    assert sorted(outcome.ticket for outcome in outcomes) == blocked
    assert {outcome.kind for outcome in outcomes} == {Kind.CANCELLED}
    (after,) = tasks.run(pool, Task(tasks.add, (1, 1)))
    assert after.value == 2


@pytest.mark.medium
def test_stage_times_come_back_and_nested_ones_count_once(pool: Pool) -> None:
    (outcome,) = tasks.run(pool, Task(tasks.work_in_stages))
    assert set(outcome.stages) == {"parse", "compile", "link"}
    assert outcome.stages["parse"] >= 0.02
    assert outcome.stages["compile"] >= 0.04
    assert outcome.stages["link"] >= 0.02
    assert sum(outcome.stages.values()) <= outcome.seconds

"""The pool: one contract, two ways of starting a process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_tasks as tasks

from whet.core.errors import ConfigFailure, UsageError
from whet.core.status import Status
from whet.core.trial import Limit
from whet.workers import Kind, Outcome, Pool, Task, open_pool

both_modes = pytest.mark.parametrize("mode", ["spawn", "fork"])


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the workers' folders are made, empty otherwise."""
    path = tmp_path / "folders"
    path.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(path))
    return path


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with open_pool(2, getattr(request, "param", "spawn")) as opened:
        yield opened


pool_of_both_modes = pytest.mark.parametrize("pool", ["spawn", "fork"], indirect=True)


def run(pool: Pool, *tasks: Task) -> list[Outcome]:
    """Outcomes in the order of the tasks."""
    tickets = [pool.submit(task) for task in tasks]
    outcomes: dict[int, Outcome] = {}
    while pool.pending:
        outcomes.update((outcome.ticket, outcome) for outcome in pool.wait(None))
    return [outcomes[ticket] for ticket in tickets]


@pool_of_both_modes
def test_a_task_returns_its_value(pool: Pool) -> None:
    before = time.monotonic()
    (outcome,) = run(pool, Task(tasks.add, (2, 3)))
    assert (outcome.kind, outcome.value, outcome.error) == (Kind.DONE, 5, "")
    assert before <= outcome.started <= outcome.ended <= time.monotonic()
    assert 0 <= outcome.seconds <= outcome.ended - outcome.started


@both_modes
def test_many_quick_tasks_are_each_delivered_once(mode: str) -> None:
    count = 500 if mode == "spawn" else 100
    with open_pool(2, mode) as pool:
        tickets = [pool.submit(Task(tasks.add, (n, n))) for n in range(count)]
        outcomes: list[Outcome] = []
        while pool.pending:
            outcomes += pool.wait(None)
    assert sorted(outcome.ticket for outcome in outcomes) == tickets
    assert {outcome.ticket: outcome.value for outcome in outcomes} == {
        ticket: 2 * n for n, ticket in enumerate(tickets)
    }


@pool_of_both_modes
def test_values_of_many_megabytes_go_both_ways(pool: Pool) -> None:
    big = os.urandom(5_000_000)
    (outcome,) = run(pool, Task(bytes.join, (b"", [big, big])))
    assert outcome.value == big + big


@pool_of_both_modes
def test_an_exception_arrives_as_itself(pool: Pool) -> None:
    (outcome,) = run(pool, Task(tasks.fail, ("no such tile",)))
    assert outcome.kind is Kind.RAISED
    assert isinstance(outcome.exception, ValueError)
    assert outcome.error == "ValueError: no such tile"


@pool_of_both_modes
def test_a_config_failure_keeps_its_status_and_limit(pool: Pool) -> None:
    (outcome,) = run(pool, Task(tasks.refuse_config))
    assert isinstance(outcome.exception, ConfigFailure)
    assert outcome.exception.status is Status.RESOURCES
    assert outcome.exception.limit == Limit("memory_bytes", 4096.0)


@pool_of_both_modes
def test_an_exception_that_cannot_be_sent_is_described(pool: Pool) -> None:
    (outcome,) = run(pool, Task(tasks.raise_unsendable))
    assert (outcome.kind, outcome.exception) == (Kind.RAISED, None)
    assert outcome.error == "Unsendable: holds a lock"


@pool_of_both_modes
def test_a_result_that_cannot_be_sent_is_an_error_that_says_so(pool: Pool) -> None:
    (outcome,) = run(pool, Task(tasks.return_lock))
    assert outcome.kind is Kind.RAISED
    assert "the result, of type lock, cannot be sent back" in outcome.error


@pool_of_both_modes
@pytest.mark.parametrize("how", [SystemExit, KeyboardInterrupt])
def test_a_task_that_tries_to_leave_only_fails(pool: Pool, how: type[BaseException]) -> None:
    left, after = run(pool, Task(tasks.leave, (how,)), Task(tasks.add, (1, 1)))
    assert left.kind is Kind.RAISED
    assert left.error == f"{how.__name__}: 3"
    assert after.value == 2


@pool_of_both_modes
def test_death_by_signal_names_the_signal_and_quotes_the_last_words(pool: Pool) -> None:
    (outcome,) = run(pool, Task(tasks.segfault, ("cc1: internal error\n",)))
    assert (outcome.kind, outcome.signal) == (Kind.DIED, signal.SIGSEGV)
    assert outcome.error == "was killed by SIGSEGV\ncc1: internal error"


@pool_of_both_modes
def test_a_sudden_exit_names_the_code(pool: Pool) -> None:
    (outcome,) = run(pool, Task(os._exit, (3,)))
    assert (outcome.kind, outcome.signal) == (Kind.DIED, None)
    assert outcome.error == "exited with code 3"


@pool_of_both_modes
def test_a_worker_that_hangs_up_but_lives_is_ended(pool: Pool) -> None:
    outcome, after = run(pool, Task(os.closerange, (3, 256)), Task(tasks.add, (1, 1)))
    assert outcome.kind is Kind.DIED
    assert after.value == 2


@pool_of_both_modes
def test_passing_the_time_limit_kills_the_whole_tree(pool: Pool, tmp_path: Path) -> None:
    ticket = pool.submit(Task(tasks.hang_with_children, (tmp_path,), limit_s=1.0))
    (outcome,) = pool.wait(None)
    assert (outcome.ticket, outcome.kind) == (ticket, Kind.TIMED_OUT)
    assert "still running after 1 s" in outcome.error
    pids = tasks.pids_in(tmp_path)
    assert len(pids) == 4
    assert [pid for pid in pids if tasks.alive(pid)] == []


@pool_of_both_modes
def test_what_a_crashed_task_started_is_killed(pool: Pool, tmp_path: Path) -> None:
    (outcome,) = run(pool, Task(tasks.spawn_and_crash, (tmp_path,)))
    assert outcome.signal == signal.SIGSEGV
    (child,) = tasks.pids_in(tmp_path)
    assert not tasks.alive(child)


@pool_of_both_modes
def test_what_a_finished_task_left_running_is_killed(pool: Pool) -> None:
    outcome, after = run(pool, Task(tasks.leave_a_child_running), Task(tasks.add, (1, 1)))
    assert outcome.kind is Kind.DONE
    assert [pid for pid in outcome.value if tasks.alive(pid)] == []
    assert after.value == 2


def test_a_pre_started_worker_is_used_again() -> None:
    with open_pool(1, "spawn") as pool:
        first, second = run(pool, Task(tasks.own_pid), Task(tasks.own_pid))
    assert first.value == second.value != os.getpid()


def test_a_killed_worker_is_replaced() -> None:
    with open_pool(1, "spawn") as pool:
        before, late, after = run(
            pool,
            Task(tasks.own_pid),
            Task(time.sleep, (tasks.FOREVER,), limit_s=0.2),
            Task(tasks.own_pid),
        )
    assert late.kind is Kind.TIMED_OUT
    assert after.kind is Kind.DONE
    assert after.value != before.value


@pool_of_both_modes
def test_the_memory_limit_raises_memory_error_and_ends_with_the_task(pool: Pool) -> None:
    greedy = run(pool, *[Task(tasks.allocate, (300 << 20,), memory_bytes=100 << 20)] * 2)
    assert [type(outcome.exception) for outcome in greedy] == [MemoryError, MemoryError]
    free = run(pool, *[Task(tasks.allocate, (300 << 20,))] * 2)
    assert [outcome.kind for outcome in free] == [Kind.DONE, Kind.DONE]


def test_the_memory_limit_counts_from_what_the_process_already_holds() -> None:
    held = bytearray(200 << 20)
    with open_pool(1, "fork") as pool:
        (outcome,) = run(
            pool, Task(lambda: len(held) + tasks.allocate(20 << 20), memory_bytes=100 << 20)
        )
    assert outcome.value == 220 << 20


def test_fork_runs_closures() -> None:
    secret = object()
    with open_pool(1, "fork") as pool:
        (outcome,) = run(pool, Task(lambda: secret is not None and os.getpid()))
    assert outcome.kind is Kind.DONE
    assert outcome.value != os.getpid()


def test_a_closure_in_a_pre_started_worker_is_refused_with_the_remedy() -> None:
    with open_pool(1, "spawn") as pool:
        (outcome,) = run(pool, Task(lambda: 1, label="BM=64"))
    assert outcome.kind is Kind.RAISED
    assert isinstance(outcome.exception, TypeError)
    assert outcome.error.startswith("task 'BM=64' cannot be sent to a worker")
    assert outcome.error.endswith("use mode 'fork'")


def test_a_task_of_the_callers_script_is_refused_with_the_remedy() -> None:
    main = sys.modules["__main__"]
    serve_tasks = type(tasks.add)(tasks.add.__code__, {}, "serve_tasks")
    serve_tasks.__module__, serve_tasks.__qualname__ = "__main__", "serve_tasks"
    main.serve_tasks = serve_tasks  # type: ignore[attr-defined]
    try:
        with open_pool(1, "spawn") as pool:
            (outcome,) = run(pool, Task(serve_tasks, (1, 2)))
    finally:
        del main.serve_tasks  # type: ignore[attr-defined]
    assert outcome.kind is Kind.RAISED
    assert "could not load the task" in outcome.error
    assert "use mode 'fork'" in outcome.error


@pool_of_both_modes
def test_output_is_kept_from_the_terminal_and_quoted_in_errors(
    pool: Pool, capfd: pytest.CaptureFixture[str]
) -> None:
    (outcome,) = run(pool, Task(tasks.print_everywhere))
    assert outcome.error.splitlines() == [
        "ValueError: after printing",
        "from Python",
        "to stderr",
        "from a child",
        "its error",
    ]
    assert capfd.readouterr() == ("", "")


def test_output_of_one_task_is_not_quoted_for_the_next() -> None:
    with open_pool(1, "spawn") as pool:
        _, outcome = run(pool, Task(print, ("noise",)), Task(tasks.fail, ("quiet",)))
    assert outcome.error == "ValueError: quiet"


def test_endless_output_is_bounded(folders: Path) -> None:
    sizes: list[int] = []
    with open_pool(1, "spawn") as pool:
        pool.submit(Task(tasks.print_endlessly, limit_s=1.5))
        while not (outcomes := pool.wait(0.02)):
            sizes += [path.stat().st_size for path in folders.glob("*/output")]
    assert any(later < earlier for earlier, later in zip(sizes, sizes[1:], strict=False))
    (outcome,) = outcomes
    assert outcome.error.endswith("xxx")
    assert len(outcome.error) < 10_000


@pool_of_both_modes
def test_a_worker_has_its_own_folder_session_and_no_input(pool: Pool) -> None:
    (outcome,) = run(pool, Task(tasks.surroundings))
    seen = outcome.value
    assert seen["cwd"] == seen["TMPDIR"] == seen["tempfile"] != os.getcwd()
    assert seen["stdin"] == os.devnull
    assert seen["session"] == seen["pid"]
    assert seen["files"] == []


def test_the_folder_is_empty_for_every_task() -> None:
    with open_pool(1, "spawn") as pool:
        _, outcome = run(pool, Task(tasks.litter), Task(tasks.surroundings))
    assert outcome.value["files"] == []
    assert outcome.value["cwd"] == outcome.value["TMPDIR"]


@both_modes
def test_closing_leaves_no_folder_no_process_and_no_descriptor(mode: str, folders: Path) -> None:
    open_before = len(os.listdir("/proc/self/fd"))
    with open_pool(2, mode) as pool:
        run(pool, Task(tasks.litter), Task(tasks.fail, ("x",)), Task(os._exit, (1,)))
        pool.submit(Task(tasks.wait_for, (folders / "never",)))
        assert tasks.eventually(pool.running)
        assert list(folders.iterdir()) != []
    assert list(folders.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == open_before
    with pytest.raises(ChildProcessError):  # nothing left to wait for, zombies included
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def test_unreadable_folders_are_removed_and_linked_files_left_alone(
    folders: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("keep")
    outside.chmod(0o640)

    def lock_up() -> None:
        Path("locked/inner").mkdir(parents=True)
        Path("locked/link").symlink_to(outside)
        Path("locked").chmod(0)

    with open_pool(1, "fork") as pool:
        run(pool, Task(lock_up))
        assert list(folders.iterdir()) == []
    assert outside.read_text() == "keep"
    assert outside.stat().st_mode & 0o777 == 0o640


def test_lower_priorities_start_first_and_equals_in_order(tmp_path: Path) -> None:
    started: list[int] = []
    gate = tmp_path / "gate"
    with open_pool(1, "spawn", on_start=started.append) as pool:
        first = pool.submit(Task(tasks.wait_for, (gate,)))
        assert tasks.eventually(lambda: started == [first])
        late, b, a = (pool.submit(Task(tasks.add, (0, 0)), priority) for priority in (5, 1, 0))
        c = pool.submit(Task(tasks.add, (0, 0)), 1)
        gate.touch()
        while pool.pending:
            pool.wait(None)
    assert started == [first, a, b, c, late]


@both_modes
def test_work_goes_on_while_the_caller_is_busy_elsewhere(mode: str, tmp_path: Path) -> None:
    with open_pool(1, mode) as pool:
        for n in range(3):
            pool.submit(Task(Path.touch, (tmp_path / str(n),)))
        assert tasks.eventually(lambda: len(list(tmp_path.iterdir())) == 3)
        assert pool.pending == 3


@both_modes
def test_cancelling_kills_what_runs_and_drops_what_waits(mode: str, tmp_path: Path) -> None:
    with open_pool(1, mode) as pool:
        running = pool.submit(Task(tasks.hang_with_children, (tmp_path,)))
        waiting = pool.submit(Task(tasks.add, (1, 1)))
        kept = pool.submit(Task(tasks.add, (2, 2)))
        assert tasks.eventually(lambda: len(tasks.pids_in(tmp_path)) == 4)
        assert pool.running() == (running,)
        pool.cancel(waiting)
        pool.cancel(running)
        outcomes: dict[int, Outcome] = {}
        while pool.pending:
            outcomes.update((outcome.ticket, outcome) for outcome in pool.wait(None))
    assert outcomes[running].kind is outcomes[waiting].kind is Kind.CANCELLED
    assert outcomes[kept].value == 4
    assert [pid for pid in tasks.pids_in(tmp_path) if tasks.alive(pid)] == []


@pool_of_both_modes
def test_cancelling_everything_leaves_a_pool_that_works(pool: Pool, tmp_path: Path) -> None:
    blocked = [pool.submit(Task(tasks.wait_for, (tmp_path / "never",))) for _ in range(5)]
    pool.cancel_all()
    outcomes: list[Outcome] = []
    while pool.pending:
        outcomes += pool.wait(None)
    assert sorted(outcome.ticket for outcome in outcomes) == blocked
    assert {outcome.kind for outcome in outcomes} == {Kind.CANCELLED}
    (after,) = run(pool, Task(tasks.add, (1, 1)))
    assert after.value == 2


def test_waiting_ends_when_nothing_is_pending_or_time_is_up(pool: Pool, tmp_path: Path) -> None:
    assert pool.wait(None) == []
    pool.submit(Task(tasks.wait_for, (tmp_path / "never",)))
    assert pool.wait(0.05) == []
    assert pool.pending == 1


@pool_of_both_modes
def test_stage_times_come_back_and_nested_ones_count_once(pool: Pool) -> None:
    (outcome,) = run(pool, Task(tasks.work_in_stages))
    assert set(outcome.stages) == {"parse", "compile", "link"}
    assert outcome.stages["parse"] >= 0.02
    assert outcome.stages["compile"] >= 0.04
    assert outcome.stages["link"] >= 0.02
    assert sum(outcome.stages.values()) <= outcome.seconds


def test_stages_of_one_task_are_not_added_to_the_next() -> None:
    with open_pool(1, "spawn") as pool:
        _, outcome = run(pool, Task(tasks.work_in_stages), Task(tasks.work_in_threads))
    assert set(outcome.stages) == {"thread"}
    assert outcome.stages["thread"] >= 3 * 0.02


def test_a_pre_started_worker_loads_no_more_than_its_task_needs() -> None:
    with open_pool(1, "spawn") as pool:
        (outcome,) = run(pool, Task(sys.modules.__contains__, ("numpy",)))
        (ours,) = run(pool, Task(tasks.numpy_is_loaded))
    assert outcome.kind is Kind.RAISED or outcome.value is False
    assert ours.value is False


def test_workers_that_cannot_start_fail_the_tasks_with_what_they_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such interpreter >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with open_pool(1, "spawn") as pool:
        (outcome,) = run(pool, Task(tasks.add, (1, 1)))
    assert outcome.kind is Kind.DIED
    assert outcome.error.splitlines() == [
        "worker processes do not start",
        "exited with code 1",
        "no such interpreter",
    ]


def test_a_failing_start_callback_is_reported_to_the_caller() -> None:
    def fail(_: int) -> None:
        raise LookupError("display is gone")

    with open_pool(1, "spawn", on_start=fail) as pool:
        pool.submit(Task(tasks.add, (1, 1)))
        with pytest.raises(RuntimeError) as caught:
            pool.wait(None)
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_pool_dropped_without_closing_cleans_up(folders: Path) -> None:
    pool = open_pool(1, "spawn")
    (outcome,) = run(pool, Task(tasks.own_pid))
    del pool
    assert tasks.eventually(lambda: list(folders.iterdir()) == [])
    assert not tasks.alive(outcome.value)


def test_a_closed_pool_takes_no_more_work() -> None:
    pool = open_pool(1, "fork")
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(Task(tasks.add, (1, 1)))


def test_bad_arguments_name_themselves() -> None:
    with pytest.raises(UsageError, match="unknown worker mode 'thread'.*valid: spawn, fork"):
        open_pool(1, "thread")
    with pytest.raises(UsageError, match="jobs is 0"):
        open_pool(0)

"""The pool itself: order, cancelling, what it starts and what it leaves."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import worker_tasks as tasks

from whet.core.errors import UsageError
from whet.workers.pool import open_pool
from whet.workers.task import Kind, Task, TaskOutcome

both_modes = pytest.mark.parametrize("mode", ["spawn", "fork"])


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the workers' folders are made, empty otherwise."""
    path = tmp_path / "folders"
    path.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(path))
    return path


@pytest.mark.slow
@both_modes
def test_many_quick_tasks_are_each_delivered_once(mode: str) -> None:
    count = 200 if mode == "spawn" else 20
    with open_pool(2, mode) as pool:
        tickets = [pool.submit(Task(tasks.add, (n, n))) for n in range(count)]
        outcomes: list[TaskOutcome] = []
        while pool.pending:
            outcomes += pool.wait(None)
    assert sorted(outcome.ticket for outcome in outcomes) == tickets
    assert {outcome.ticket: outcome.value for outcome in outcomes} == {
        ticket: 2 * n for n, ticket in enumerate(tickets)
    }


@pytest.mark.medium
def test_a_pre_started_worker_is_used_again() -> None:
    with open_pool(1, "spawn") as pool:
        first, second = tasks.run(pool, Task(tasks.own_pid), Task(tasks.own_pid))
    assert first.value == second.value != os.getpid()


@pytest.mark.medium
def test_a_killed_worker_is_replaced() -> None:
    with open_pool(1, "spawn") as pool:
        before, late, after = tasks.run(
            pool,
            Task(tasks.own_pid),
            Task(time.sleep, (tasks.FOREVER,), limit_s=0.2),
            Task(tasks.own_pid),
        )
    assert late.kind is Kind.TIMED_OUT
    assert after.kind is Kind.DONE
    assert after.value != before.value


@pytest.mark.medium
def test_the_memory_limit_counts_from_what_the_process_already_holds() -> None:
    held = bytearray(120 << 20)
    with open_pool(1, "fork") as pool:
        (outcome,) = tasks.run(
            pool, Task(lambda: len(held) + tasks.allocate(20 << 20), memory_bytes=100 << 20)
        )
    assert outcome.value == 140 << 20


@pytest.mark.medium
def test_fork_runs_closures() -> None:
    secret = object()
    with open_pool(1, "fork") as pool:
        (outcome,) = tasks.run(pool, Task(lambda: secret is not None and os.getpid()))
    assert outcome.kind is Kind.DONE
    assert outcome.value != os.getpid()


@pytest.mark.medium
def test_a_closure_in_a_pre_started_worker_is_refused_with_the_remedy() -> None:
    with open_pool(1, "spawn") as pool:
        (outcome,) = tasks.run(pool, Task(lambda: 1, label="BM=64"))
    assert outcome.kind is Kind.RAISED
    assert isinstance(outcome.exception, TypeError)
    assert outcome.error.startswith("task 'BM=64' cannot be sent to a worker")
    assert outcome.error.endswith("use mode 'fork'")


@pytest.mark.medium
def test_a_task_of_the_callers_script_is_refused_with_the_remedy() -> None:
    main = sys.modules["__main__"]
    serve_tasks = type(tasks.add)(tasks.add.__code__, {}, "serve_tasks")
    serve_tasks.__module__, serve_tasks.__qualname__ = "__main__", "serve_tasks"
    main.serve_tasks = serve_tasks  # type: ignore[attr-defined]
    try:
        with open_pool(1, "spawn") as pool:
            (outcome,) = tasks.run(pool, Task(serve_tasks, (1, 2)))
    finally:
        del main.serve_tasks  # type: ignore[attr-defined]
    assert outcome.kind is Kind.RAISED
    assert "mode 'fork'" in outcome.error


@pytest.mark.medium
def test_output_of_one_task_is_not_quoted_for_the_next() -> None:
    with open_pool(1, "spawn") as pool:
        _, outcome = tasks.run(pool, Task(print, ("noise",)), Task(tasks.fail, ("quiet",)))
    assert outcome.error == "ValueError: quiet"


@pytest.mark.medium
def test_endless_output_is_bounded(folders: Path) -> None:
    sizes: list[int] = []
    with open_pool(1, "spawn") as pool:
        pool.submit(Task(tasks.print_endlessly, limit_s=1.0))
        while not (outcomes := pool.wait(0.02)):
            sizes += [path.stat().st_size for path in folders.glob("*/output")]
    assert any(later < earlier for earlier, later in itertools.pairwise(sizes))
    (outcome,) = outcomes
    assert outcome.error.endswith("xxx")
    assert len(outcome.error) < 10_000


@pytest.mark.medium
def test_the_folder_is_empty_for_every_task() -> None:
    with open_pool(1, "spawn") as pool:
        _, outcome = tasks.run(pool, Task(tasks.litter), Task(tasks.surroundings))
    assert outcome.value["files"] == []
    assert outcome.value["cwd"] == outcome.value["TMPDIR"]


@pytest.mark.medium
@both_modes
def test_closing_leaves_no_folder_no_process_and_no_descriptor(mode: str, folders: Path) -> None:
    children_before = tasks.children()
    open_before = len(os.listdir("/proc/self/fd"))
    with open_pool(2, mode) as pool:
        tasks.run(pool, Task(tasks.litter), Task(tasks.fail, ("x",)), Task(os._exit, (1,)))
        pool.submit(Task(tasks.wait_for, (folders / "never",)))
        assert tasks.eventually(pool.running)
        assert list(folders.iterdir()) != []
    assert list(folders.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert tasks.children() == children_before


@pytest.mark.medium
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
        tasks.run(pool, Task(lock_up))
        assert list(folders.iterdir()) == []
    assert outside.read_text() == "keep"
    assert outside.stat().st_mode & 0o777 == 0o640


@pytest.mark.medium
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


@pytest.mark.medium
@both_modes
def test_work_goes_on_while_the_caller_is_busy_elsewhere(mode: str, tmp_path: Path) -> None:
    with open_pool(1, mode) as pool:
        for n in range(3):
            pool.submit(Task(Path.touch, (tmp_path / str(n),)))
        assert tasks.eventually(lambda: len(list(tmp_path.iterdir())) == 3)
        assert pool.pending == 3


@pytest.mark.medium
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
        outcomes: dict[int, TaskOutcome] = {}
        while pool.pending:
            outcomes.update((outcome.ticket, outcome) for outcome in pool.wait(None))
    assert outcomes[running].kind is outcomes[waiting].kind is Kind.CANCELLED
    assert outcomes[kept].value == 4
    assert [pid for pid in tasks.pids_in(tmp_path) if tasks.alive(pid)] == []


@pytest.mark.medium
def test_waiting_ends_when_nothing_is_pending_or_time_is_up(tmp_path: Path) -> None:
    with open_pool(1, "fork") as pool:
        assert pool.wait(None) == []
        pool.submit(Task(tasks.wait_for, (tmp_path / "never",)))
        assert pool.wait(0.05) == []
        assert pool.pending == 1


@pytest.mark.medium
def test_stages_of_one_task_are_not_added_to_the_next() -> None:
    with open_pool(1, "spawn") as pool:
        _, outcome = tasks.run(pool, Task(tasks.work_in_stages), Task(tasks.work_in_threads))
    assert set(outcome.stages) == {"thread"}
    assert outcome.stages["thread"] >= 3 * 0.02


@pytest.mark.medium
def test_a_pre_started_worker_loads_nothing_before_its_task_does() -> None:
    with open_pool(1, "spawn") as pool:
        (outcome,) = tasks.run(pool, Task(eval, ("{*__import__('sys').modules}",)))
    assert {"pickle", "os"} <= outcome.value
    # What this machine's interpreter loads by itself is not the worker's doing.
    bare = [sys.executable, "-P", "-c", "import sys; print(*sys.modules)"]
    own = subprocess.run(bare, capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numpy", "whet", "subprocess", "threading"}
    assert (heavy - set(own)).isdisjoint(outcome.value)


def test_workers_that_cannot_start_fail_the_tasks_with_what_they_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such interpreter >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with open_pool(1, "spawn") as pool:
        (outcome,) = tasks.run(pool, Task(tasks.add, (1, 1)))
    assert outcome.kind is Kind.NOT_STARTED
    assert outcome.error.endswith("code 1\nno such interpreter")


@pytest.mark.medium
def test_a_failing_start_callback_is_reported_to_the_caller() -> None:
    def fail(_: int) -> None:
        raise LookupError("display is gone")

    with open_pool(1, "spawn", on_start=fail) as pool:
        pool.submit(Task(tasks.add, (1, 1)))
        with pytest.raises(RuntimeError) as caught:
            pool.wait(None)
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.medium
def test_a_pool_dropped_without_closing_cleans_up(folders: Path) -> None:
    pool = open_pool(1, "spawn")
    (outcome,) = tasks.run(pool, Task(tasks.own_pid))
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
    with pytest.raises(UsageError, match=r"unknown worker mode 'thread'.*valid: spawn, fork"):
        open_pool(1, "thread")
    with pytest.raises(UsageError, match="jobs is 0"):
        open_pool(0)

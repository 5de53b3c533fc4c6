"""Many processes, forks, and processes that are killed."""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from whet.core.workload import Workload
from whet.store import SqliteStore
from whet.testing.samples import a_trial, a_workload
from whet.testing.store_kit_base import die_if_stuck


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def workload() -> Workload:
    return a_workload()


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_if_stuck()
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def succeeded(*pids: int) -> bool:
    """Waits for all of them, whatever the first one says."""
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return not any(codes)


def check_file(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        return str(db.execute("PRAGMA quick_check").fetchone()[0])


@pytest.mark.medium
def test_processes_that_append_at_once_lose_and_double_nothing(
    path: Path, workload: Workload
) -> None:
    def append_200(worker: int) -> None:
        with SqliteStore(path) as store:
            store.put_workload(workload)
            for n in range(0, 200, 4):
                store.append(
                    a_trial(workload, {"worker": worker, "n": n + i}, id=f"{worker}-{n + i}")
                    for i in range(4)
                )

    pids = [fork(lambda worker=worker: append_200(worker)) for worker in range(4)]
    assert succeeded(*pids)
    with SqliteStore(path) as store:
        stored = [trial.id for trial in store.trials(workload.id, all=True)]
        assert len(store.trials(workload.id)) == 800
    assert sorted(stored) == sorted(f"{worker}-{n}" for worker in range(4) for n in range(200))
    assert check_file(path) == "ok"


@pytest.mark.medium
def test_processes_that_append_the_same_trials_store_each_once(
    path: Path, workload: Workload
) -> None:
    trials = [a_trial(workload, {"n": n}) for n in range(50)]

    def append_all() -> None:
        with SqliteStore(path) as store:
            store.put_workload(workload)
            for trial in random.sample(trials, len(trials)):
                store.append([trial])

    pids = [fork(append_all) for _ in range(3)]
    assert succeeded(*pids)
    with SqliteStore(path) as store:
        assert len(store.trials(workload.id, all=True)) == 50


@pytest.mark.medium
def test_a_child_keeps_what_it_wrote_after_its_parent_closed(
    path: Path, workload: Workload
) -> None:
    """SQLite's locks belong to a process: a child that took its parent's for its own would write
    into a log that the parent, believing itself alone, removes."""
    store = SqliteStore(path)
    store.put_workload(workload)
    child_ready, parent_closed = os.pipe(), os.pipe()

    def append_after_the_parent_closed() -> None:
        store.trials(workload.id)
        os.write(child_ready[1], b".")
        os.read(parent_closed[0], 1)
        store.append([a_trial(workload)])

    pid = fork(append_after_the_parent_closed)
    os.read(child_ready[0], 1)
    store.close()
    os.write(parent_closed[1], b".")
    assert succeeded(pid)
    with SqliteStore(path) as again:
        assert len(again.trials(workload.id)) == 1


@pytest.mark.medium
def test_a_child_that_exits_does_not_disturb_its_parent(path: Path, workload: Workload) -> None:
    with SqliteStore(path) as store:
        store.put_workload(workload)
        for n in range(5):
            store.append([a_trial(workload, {"n": n})])
            assert succeeded(fork(store.close))
        assert len(store.trials(workload.id)) == 5
    with SqliteStore(path) as again:
        assert len(again.trials(workload.id)) == 5


@pytest.mark.medium
def test_forks_in_the_midst_of_other_threads_writes_are_safe(
    path: Path, workload: Workload
) -> None:
    stop = threading.Event()
    appended = 0
    with SqliteStore(path) as store:
        store.put_workload(workload)

        def keep_appending() -> None:
            nonlocal appended
            while not stop.is_set():
                appended += store.append(a_trial(workload, {"n": appended + i}) for i in range(5))

        thread = threading.Thread(target=keep_appending)
        thread.start()
        pids = []
        for child in range(10):
            pids.append(
                fork(lambda child=child: store.append([a_trial(workload, {"child": child})]))
            )
            time.sleep(0.01)
        children_are_well = succeeded(*pids)
        stop.set()
        thread.join()
        assert children_are_well
        assert len(store.trials(workload.id, all=True)) == appended + 10
    assert check_file(path) == "ok"


@pytest.mark.medium
def test_processes_that_make_the_store_at_once_make_one(path: Path, workload: Workload) -> None:
    def make_and_append(worker: int) -> None:
        with SqliteStore(path) as store:
            store.put_workload(workload)
            store.append([a_trial(workload, {"worker": worker})])

    pids = [fork(lambda worker=worker: make_and_append(worker)) for worker in range(6)]
    assert succeeded(*pids)
    with SqliteStore(path) as store:
        assert len(store.trials(workload.id)) == 6
    assert os.listdir(path.parent) == ["store.db"]


def append_and_tell(path: Path, workload: Workload, pipe: int) -> None:
    """Batches of five, whose name goes into the pipe once `append` has returned."""
    with SqliteStore(path) as store:
        store.put_workload(workload)
        for batch in range(100_000):
            name = f"{os.getpid()}-{batch}"
            store.append(
                a_trial(workload, {"batch": name, "n": n}, id=f"{name}-{n}") for n in range(5)
            )
            os.write(pipe, f"{name}\n".encode())


def read_all(pipe: int) -> str:
    parts = []
    while part := os.read(pipe, 65536):
        parts.append(part)
    return b"".join(parts).decode()


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_loses_nothing_it_had_committed(
    path: Path, workload: Workload
) -> None:
    rng = random.Random(5)
    committed: set[str] = set()
    for turn in range(10):
        reading, writing = os.pipe()
        pid = fork(lambda pipe=writing: append_and_tell(path, workload, pipe))
        os.close(writing)
        if turn % 2:  # on a busy machine the others may be killed before they have begun
            assert select.select([reading], [], [], 60)[0]
        time.sleep(rng.uniform(0.0, 0.08))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        committed.update(read_all(reading).split("\n")[:-1])
        os.close(reading)
        with SqliteStore(path) as store:
            stored = [trial.id for trial in store.trials(workload.id, all=True)]
        assert {f"{name}-{n}" for name in committed for n in range(5)} <= set(stored)
        assert len(stored) == len(set(stored))
        assert len(stored) % 5 == 0
        assert check_file(path) == "ok"
    assert committed


@pytest.mark.medium
def test_a_store_whose_checkpoint_was_cut_short_opens(path: Path, workload: Workload) -> None:
    """A checkpoint writes the first page, which has the file's new length, before the rest."""

    def append_and_leave_the_log() -> None:
        store = SqliteStore(path)
        store.put_workload(workload)
        store.append(a_trial(workload, {"n": n}) for n in range(200))
        os._exit(0)

    assert succeeded(fork(append_and_leave_the_log))
    with path.open("r+b") as file:
        file.seek(28)
        file.write((1000).to_bytes(4, "big"))
    with SqliteStore(path) as store:
        assert len(store.trials(workload.id)) == 200
    assert check_file(path) == "ok"


@pytest.mark.medium
def test_a_writer_killed_while_another_process_has_the_store_open(
    path: Path, workload: Workload
) -> None:
    with SqliteStore(path) as store:
        store.put_workload(workload)
        for delay in (0.01, 0.03, 0.05):
            reading, writing = os.pipe()
            pid = fork(lambda pipe=writing: append_and_tell(path, workload, pipe))
            os.close(writing)
            os.read(reading, 1)
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(reading)
            before = len(store.trials(workload.id, all=True))
            assert before > 0
            assert store.append([a_trial(workload, {"delay": delay})]) == 1
    with SqliteStore(path) as again:
        assert len(again.trials(workload.id, all=True)) == before + 1
    assert check_file(path) == "ok"

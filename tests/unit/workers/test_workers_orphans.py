"""What becomes of the workers when the tuner itself ends, in any way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import worker_tasks as tasks

import whet

both_modes = pytest.mark.parametrize("mode", ["spawn", "fork"])
HERE = Path(__file__).parent


def start(script: list[str], temporary: Path) -> subprocess.Popen[str]:
    """Everything this starts has the path of `temporary` in its environment."""
    temporary.mkdir()
    paths = [str(HERE), str(Path(whet.__file__).parents[1])]
    return subprocess.Popen(
        [sys.executable, *script],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_script(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    process = start(["-c", textwrap.dedent(text)], tmp_path / "temporary")
    stdout, stderr = process.communicate(timeout=60)
    return subprocess.CompletedProcess(text, process.returncode, stdout, stderr)


def hanging(mode: str, tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    process = start([str(HERE / "orphanage.py"), mode, str(tmp_path)], tmp_path / "temporary")
    assert process.stdout is not None
    assert process.stdout.readline() == "hanging\n"
    pids = tasks.pids_in(tmp_path / "pool") + tasks.pids_in(tmp_path / "session")
    assert len(pids) == 8
    assert all(tasks.alive(pid) for pid in pids)
    return process, pids


def nothing_is_left(pids: list[int], temporary: Path) -> bool:
    return tasks.eventually(
        lambda: (
            not any(tasks.alive(pid) for pid in pids)
            and tasks.mentioning(str(temporary)) == []
            and list(temporary.iterdir()) == []
        )
    )


@pytest.mark.medium
@both_modes
def test_nothing_is_left_after_kill_minus_nine(mode: str, tmp_path: Path) -> None:
    process, pids = hanging(mode, tmp_path)
    process.kill()
    process.communicate()
    assert nothing_is_left(pids, tmp_path / "temporary")


@pytest.mark.medium
@both_modes
def test_nothing_is_left_after_an_interrupt(mode: str, tmp_path: Path) -> None:
    process, pids = hanging(mode, tmp_path)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in stderr
    assert [pid for pid in pids if tasks.alive(pid)] == []
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.medium
def test_nothing_is_left_when_the_reaper_was_killed_before(tmp_path: Path) -> None:
    script = f"""
        import os, signal
        import worker_tasks as tasks
        from pathlib import Path
        from whet.workers.pool import open_pool
        from whet.workers.session import Session
        from whet.workers.task import Task

        with open_pool(1, "fork") as pool:
            first = pool.submit(Task(os.getpid))
            pool.wait(None)
            children = Path("/proc/self/task").glob("*/children")
            (reaper,) = [int(pid) for path in children for pid in path.read_text().split()]
            os.kill(reaper, signal.SIGKILL)
            assert tasks.eventually(lambda: not tasks.alive(reaper))
            folder = Path({str(tmp_path)!r})
            pool.submit(Task(tasks.hang_with_children, (folder,)))
            tasks.wait_for(folder / "self.pid")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = run_script(script, tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = tasks.pids_in(tmp_path)
    assert len(pids) == 4
    assert nothing_is_left(pids, tmp_path / "temporary")


@pytest.mark.medium
def test_nothing_is_left_by_a_script_that_closes_nothing(tmp_path: Path) -> None:
    done = run_script(
        """
        import time
        import worker_tasks as tasks
        from whet.workers.pool import open_pool
        from whet.workers.session import Session
        from whet.workers.task import Task

        pool = open_pool(2)
        pool.submit(Task(time.sleep, (600,)))
        session = Session(tasks.Counter, "fork")
        print(session.call("add").value)
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.medium
def test_a_forked_task_shares_no_buffers_handlers_or_exits_with_its_parent(tmp_path: Path) -> None:
    done = run_script(
        """
        import atexit, gc, os, signal, sys
        from whet.workers.pool import open_pool
        from whet.workers.task import Task

        def task():
            gc.collect()
            print("captured")
            return signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

        signal.signal(signal.SIGTERM, lambda *_: None)
        atexit.register(lambda: sys.stdout.write(", exit"))
        sys.stdout.write("buffered")
        with open_pool(2, "fork") as pool:
            for call in (task, lambda: sys.exit(1), lambda: open, lambda: os.abort()):
                pool.submit(Task(call))
            kinds = {}
            while pool.pending:
                kinds.update((o.ticket, (o.kind.value, o.value)) for o in pool.wait(None))
        sys.stdout.write(f", {[kinds[ticket] for ticket in sorted(kinds)]}")
        """,
        tmp_path,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("buffered, [('done', True), ('raised', None), ('done', ")
    assert done.stdout.endswith("('died', None)], exit")


@pytest.mark.medium
def test_a_process_forked_by_the_caller_leaves_the_workers_alone(tmp_path: Path) -> None:
    done = run_script(
        """
        import os, sys, warnings
        import worker_tasks as tasks
        from whet.workers.pool import open_pool
        from whet.workers.session import Session
        from whet.workers.task import Task

        warnings.simplefilter("ignore")  # of forking beside threads
        with open_pool(1) as pool, Session(tasks.Counter) as session:
            session.call("add")
            pid = os.fork()
            if pid == 0:
                for use in (lambda: session.call("add"), lambda: pool.submit(Task(os.getpid))):
                    try:
                        use()
                    except RuntimeError as error:
                        assert "another process" in str(error)
                session.close()
                pool.close()
                with Session(tasks.Counter) as own:
                    assert own.call("add", 5).value == 5
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            pool.submit(Task(tasks.add, (1, 1)))
            print(session.call("add").value, pool.wait(None)[0].value)
        """,
        tmp_path,
    )
    assert (done.stdout, done.stderr) == ("2 2\n", "")


def test_a_stage_outside_a_worker_is_harmless() -> None:
    from whet.workers.stages import stage, take

    take()  # what other tests have left in this process
    with stage("here"), stage("there"):
        pass
    assert set(take()) == {"here", "there"}
    assert take() == {}

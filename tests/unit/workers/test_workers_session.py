"""The session: one object in a process of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_tasks as tasks

from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.workers import RemoteError, Session, WorkerDied, WorkerTimeout
from whet.workers.spares import KEPT


@pytest.fixture(params=["spawn", "fork"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session(tasks.Counter, request.param) as opened:
        yield opened


@pytest.mark.medium
def test_the_object_keeps_its_state_between_calls(session: Session) -> None:
    assert [session.call("add", n).value for n in (1, 10, 100)] == [1, 11, 111]
    assert session.generation == 1
    assert session.call("pid").value != os.getpid()


@pytest.mark.medium
def test_a_reply_carries_time_and_stages(session: Session) -> None:
    reply = session.call("run", tasks.work_in_stages)
    assert set(reply.stages) == {"parse", "compile", "link"}
    assert sum(reply.stages.values()) <= reply.seconds
    assert session.call("add").stages == {}


@pytest.mark.medium
def test_values_of_many_megabytes_go_both_ways(session: Session) -> None:
    big = os.urandom(5_000_000)
    assert session.call("echo", big).value == big


@pytest.mark.medium
def test_death_is_an_error_with_its_signal_and_last_words(session: Session) -> None:
    session.call("add", 5)
    with pytest.raises(WorkerDied) as caught:
        session.call("run", tasks.segfault, "free(): invalid pointer\n")
    assert caught.value.signal == signal.SIGSEGV
    assert caught.value.exitcode is None
    assert caught.value.stderr_tail == "free(): invalid pointer"
    assert str(caught.value) == "the worker was killed by SIGSEGV\nfree(): invalid pointer"


@pytest.mark.medium
def test_an_exit_is_an_error_with_its_code(session: Session) -> None:
    with pytest.raises(WorkerDied) as caught:
        session.call("run", os._exit, 4)
    assert (caught.value.signal, caught.value.exitcode) == (None, 4)


@pytest.mark.medium
def test_a_garbled_answer_is_a_death(session: Session) -> None:
    with pytest.raises(WorkerDied):
        session.call("run", tasks.babble)
    assert session.call("add").value == 1


@pytest.mark.medium
def test_after_a_death_the_next_call_has_a_fresh_object(session: Session) -> None:
    session.call("add", 5)
    folder = session.tempdir
    with pytest.raises(WorkerDied):
        session.call("run", os._exit, 1)
    assert not folder.exists()
    assert session.call("add", 1).value == 1
    assert session.generation == 2


@pytest.mark.medium
def test_a_death_between_calls_is_reported_by_the_next(session: Session) -> None:
    pid = session.call("pid").value
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied):
        session.call("add")
    assert session.call("add").value == 1


@pytest.mark.medium
def test_the_time_limit_kills_the_child_with_its_tree(session: Session, tmp_path: Path) -> None:
    for limit_s in tasks.long_enough(tmp_path):
        with pytest.raises(WorkerTimeout) as caught:
            session.call("run", tasks.hang_with_children, tmp_path, limit_s=limit_s)
        assert caught.value.limit_s == limit_s
    assert [pid for pid in tasks.pids_in(tmp_path) if tasks.alive(pid)] == []
    assert session.call("add", limit_s=60).value == 1


@pytest.mark.medium
def test_the_memory_limit_raises_memory_error_and_spares_the_child(session: Session) -> None:
    with pytest.raises(MemoryError):
        session.call("run", tasks.allocate, 300 << 20, memory_bytes=100 << 20)
    assert session.call("run", tasks.allocate, 300 << 20).value == 300 << 20
    assert session.generation == 1


@pytest.mark.medium
def test_shared_memory_beyond_the_limit_is_a_memory_error_and_ends_the_child(
    session: Session,
) -> None:
    within = session.call("run", tasks.share_memory, 20 << 20, 0.6, memory_bytes=100 << 20)
    assert within.value == 20 << 20
    with pytest.raises(
        MemoryError, match=r"used \d+ MiB of shared memory, more than the limit of 100"
    ):
        session.call("run", tasks.share_memory, 300 << 20, 600, limit_s=60, memory_bytes=100 << 20)
    assert session.call("add").value == 1
    assert session.generation == 2


@pytest.mark.medium
def test_shared_memory_that_was_there_before_a_call_does_not_count(session: Session) -> None:
    session.call("run", tasks.keep_shared_memory, 200 << 20)
    more = session.call("run", tasks.share_memory, 50 << 20, 0.6, memory_bytes=100 << 20)
    assert more.value == 50 << 20


@pytest.mark.medium
def test_known_exceptions_are_raised_as_themselves(session: Session) -> None:
    with pytest.raises(ConfigFailure) as failure:
        session.call("run", tasks.refuse_config)
    assert failure.value.status is Status.RESOURCES
    with pytest.raises(ValueError, match="no such tile") as error:
        session.call("run", tasks.fail, "no such tile")
    assert isinstance(error.value.__cause__, RemoteError)
    assert "in fail" in error.value.__cause__.traceback


@pytest.mark.medium
@pytest.mark.parametrize(
    ("call", "argument", "text"),
    [
        (tasks.raise_unsendable, (), "Unsendable: holds a lock"),
        (tasks.leave, (SystemExit,), "SystemExit: 3"),
        (tasks.leave, (KeyboardInterrupt,), "KeyboardInterrupt: 3"),
    ],
)
def test_other_exceptions_are_remote_errors(
    session: Session, call: object, argument: tuple[object, ...], text: str
) -> None:
    with pytest.raises(RemoteError) as caught:
        session.call("run", call, *argument)
    assert str(caught.value) == text
    assert session.call("add").value == 1
    assert session.generation == 1


@pytest.mark.medium
def test_a_missing_method_is_an_attribute_error(session: Session) -> None:
    with pytest.raises(AttributeError, match="subtract"):
        session.call("subtract")


@pytest.mark.medium
def test_an_argument_that_cannot_be_sent_leaves_the_session_usable(session: Session) -> None:
    with pytest.raises(TypeError, match="an argument of 'echo' cannot be sent"):
        session.call("echo", threading.Lock())
    assert session.call("add").value == 1
    assert session.generation == 1


@pytest.mark.medium
def test_an_interrupt_in_the_middle_of_a_call_never_leaves_an_old_answer(
    session: Session, tmp_path: Path
) -> None:
    def interrupt() -> None:
        tasks.wait_for(tmp_path / "self.pid")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        session.call("run", tasks.hang_with_children, tmp_path)
    thread.join()
    assert [pid for pid in tasks.pids_in(tmp_path) if tasks.alive(pid)] == []
    assert session.call("add").value == 1
    assert session.generation == 2


@pytest.mark.medium
def test_the_child_works_in_its_own_folder_and_prints_nowhere(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = session.call("run", tasks.surroundings).value
    session.call("run", print, "noise")
    assert Path(seen["cwd"]) == Path(seen["TMPDIR"]) == session.tempdir
    assert capfd.readouterr() == ("", "")


@pytest.mark.medium
def test_files_and_helpers_last_from_call_to_call(session: Session) -> None:
    session.call("run", tasks.litter)
    _, helper = session.call("run", tasks.leave_a_child_running).value
    assert (session.tempdir / "object.o").exists()
    assert tasks.alive(helper)
    session.close()
    assert not tasks.alive(helper)


@pytest.mark.medium
def test_closing_leaves_no_folder_no_process_and_no_descriptor() -> None:
    children_before = tasks.children()
    open_before = len(os.listdir("/proc/self/fd"))
    with Session(tasks.Counter) as session:
        pid, folder = session.call("pid").value, session.tempdir
        with pytest.raises(WorkerTimeout):
            session.call("run", time.sleep, tasks.FOREVER, limit_s=0.1)
        session.call("add")
    assert not tasks.alive(pid)
    assert not folder.exists()
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert tasks.children() == children_before
    with pytest.raises(RuntimeError, match="closed"):
        session.call("add")


@pytest.mark.medium
def test_sessions_side_by_side_do_not_hear_each_other_die() -> None:
    with Session(tasks.Counter, "fork") as first, Session(tasks.Counter, "fork") as second:
        second.call("add", 7)
        with pytest.raises(WorkerDied):
            first.call("run", os._exit, 1)
        assert second.call("add").value == 8


@pytest.mark.medium
def test_fork_inherits_a_factory_that_cannot_be_sent() -> None:
    secret = threading.Lock()

    def factory() -> tasks.Counter:
        counter = tasks.Counter()
        counter.count = 40 if secret else 0
        return counter

    with Session(factory, "fork") as session:
        assert session.call("add", 2).value == 42
    with pytest.raises(TypeError, match=r"the factory cannot be sent.*use mode 'fork'"):
        Session(factory)


@pytest.mark.medium
def test_a_factory_that_fails_fails_every_call_with_its_own_error() -> None:
    with Session(tasks.broken_factory) as session:
        for _ in range(2):
            with pytest.raises(ValueError, match="no such library"):
                session.call("add")


@pytest.mark.medium
def test_a_factory_that_hangs_meets_the_start_limit() -> None:
    with (
        Session(lambda: time.sleep(tasks.FOREVER), "fork", start_limit_s=0.2) as session,
        pytest.raises(WorkerTimeout) as caught,
    ):
        session.call("add")
    assert caught.value.limit_s == 0.2


@pytest.mark.medium
def test_an_object_can_be_made_before_it_is_needed(tmp_path: Path) -> None:
    with Session(tasks.Announced(tmp_path / "made")) as announced:
        assert announced.made == 0
        announced.prepare()
        assert tasks.eventually((tmp_path / "made").exists)
        announced.prepare()
        assert announced.call("add", 2).value == 2
        assert (announced.made, announced.generation) == (1, 1)


@pytest.mark.medium
def test_what_went_wrong_in_preparing_is_for_the_next_call() -> None:
    with Session(tasks.broken_factory) as session:
        session.prepare()
        with pytest.raises(ValueError, match="no such library"):
            session.call("add")
        assert session.made < session.generation


@pytest.mark.medium
def test_a_child_of_no_more_use_is_replaced(session: Session) -> None:
    session.call("add", 5)
    pid = session.call("pid").value
    session.discard()
    assert not tasks.alive(pid)
    assert session.call("add", 1).value == 1
    assert session.generation == 2


def _workers() -> set[str]:
    """A reaper is none; it may be there for somebody else already."""
    return tasks.children() & set(map(str, tasks.mentioning("_WHET_WORKER")))


@pytest.mark.medium
def test_a_healthy_session_has_no_spares() -> None:
    before = tasks.children()
    with Session(tasks.Counter, preload=["json"]) as session:
        session.call("add")
        session.call("add")
        assert len(tasks.children() - before) <= 2, "the child and the reaper"


@pytest.mark.medium
def test_after_a_death_a_spare_with_its_imports_done_takes_the_next_place() -> None:
    before = tasks.children()
    with Session(tasks.Counter, preload=["wave", "no.such.module"]) as session:
        with pytest.raises(WorkerDied):
            session.call("run", os._exit, 1)
        session.call("add")
        assert tasks.eventually(lambda: len(_workers() - before) == 1 + KEPT)
        spares = _workers() - before - {str(session.call("pid").value)}
        for _ in range(3):
            with pytest.raises(WorkerDied):
                session.call("run", os._exit, 1)
            assert session.call("run", tasks.has_imported, "wave").value
            assert session.call("add", 7).value == 7
        assert str(session.call("pid").value) not in before
        assert spares & tasks.children() != spares, "one of them was used"
    assert tasks.children() == before


@pytest.mark.medium
def test_a_spare_that_was_killed_is_passed_over() -> None:
    before = tasks.children()
    with Session(tasks.Counter, preload=["wave"]) as session:
        session.discard()
        own = str(session.call("pid").value)
        assert tasks.eventually(lambda: len(_workers() - before) == 1 + KEPT)
        spares = _workers() - before - {own}
        for pid in spares:
            os.kill(int(pid), signal.SIGKILL)
        assert tasks.eventually(lambda: not any(tasks.alive(int(pid)) for pid in spares))
        session.discard()
        assert session.call("add", 3).value == 3
    assert tasks.children() == before


@pytest.mark.medium
def test_closing_need_not_wait_for_the_end_of_the_child() -> None:
    before = tasks.children()
    session = Session(tasks.Counter)
    pid, folder = session.call("pid").value, session.tempdir
    session.close(wait=False)
    session.close()
    assert tasks.eventually(lambda: not tasks.alive(pid) and not folder.exists())
    assert tasks.eventually(lambda: tasks.children() == before)


class _InParts:
    """Tells of two parts, each of which may hang."""

    def milestone(self, name: str) -> None: ...

    def go(self, first_s: float, then_s: float) -> str:
        self.milestone("first")
        time.sleep(first_s)
        self.milestone("then")
        time.sleep(then_s)
        return "done"


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["spawn", "fork"])
def test_the_parts_of_a_call_have_limits_of_their_own(mode: str) -> None:
    with Session(_InParts, mode) as session:
        long = {"first": 60.0, "then": 60.0}
        assert session.call("go", 1.6, 0.0, limit_s=1.5, parts_s=long).value == "done"
        with pytest.raises(WorkerTimeout) as late:
            session.call("go", 0.0, tasks.FOREVER, limit_s=60.0, parts_s={**long, "then": 0.3})
        assert (late.value.milestone, late.value.limit_s) == ("then", 0.3)
        with pytest.raises(WorkerTimeout) as early:
            session.call("go", tasks.FOREVER, 0.0, limit_s=60.0, parts_s={**long, "first": 0.2})
        assert (early.value.milestone, early.value.limit_s) == ("first", 0.2)


@pytest.mark.medium
def test_milestones_that_nobody_limits_leave_the_limit_of_the_call() -> None:
    with Session(_InParts, "fork") as session:
        assert session.call("go", 0.0, 0.0, limit_s=60.0).value == "done"
        with pytest.raises(WorkerTimeout) as late:
            session.call("go", 0.0, tasks.FOREVER, limit_s=0.3)
        assert (late.value.milestone, late.value.limit_s) == ("", 0.3)


class _InManyParts(_InParts):
    def chatter(self, milestones: int) -> str:
        for _ in range(milestones):
            self.milestone("then")
        return "done"


def test_frames_that_come_together_are_all_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two polls that time out, not one frame after each."""
    monkeypatch.setattr("whet.workers.session.TICK_S", 20.0)
    with Session(_InManyParts, "fork") as session:
        assert session.call("chatter", 2000, limit_s=60.0, parts_s={"then": 15.0}).value == "done"

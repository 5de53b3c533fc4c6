"""The session: one object in a process of its own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_tasks as tasks

from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.workers.answers import RemoteError, WorkerDied, WorkerTimeout
from whet.workers.session import Session

pytestmark = pytest.mark.medium


@pytest.fixture(params=["spawn", "fork"], scope="module")
def shared(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session(tasks.Counter, request.param) as opened:
        yield opened


@pytest.fixture
def session(shared: Session) -> Session:
    """One for all tests, which start at 0: a process for each would be most of what they cost."""
    shared.call("reset")
    return shared


@pytest.fixture(params=["spawn", "fork"])
def own_session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session(tasks.Counter, request.param) as opened:
        yield opened


def test_the_object_keeps_its_state_between_calls(own_session: Session) -> None:
    assert [own_session.call("add", n).value for n in (1, 10, 100)] == [1, 11, 111]
    assert own_session.generation == 1
    assert own_session.call("pid").value != os.getpid()


def test_a_reply_carries_time_and_stages(session: Session) -> None:
    reply = session.call("run", tasks.work_in_stages)
    assert set(reply.stages) == {"parse", "compile", "link"}
    assert sum(reply.stages.values()) <= reply.seconds
    assert session.call("add").stages == {}


def test_values_of_many_megabytes_go_both_ways(session: Session) -> None:
    big = os.urandom(5_000_000)
    assert session.call("echo", big).value == big


def test_death_is_an_error_with_its_signal_and_last_words(session: Session) -> None:
    session.call("add", 5)
    with pytest.raises(WorkerDied) as caught:
        session.call("run", tasks.segfault, "free(): invalid pointer\n")
    assert caught.value.signal == signal.SIGSEGV
    assert caught.value.exitcode is None
    assert caught.value.stderr_tail == "free(): invalid pointer"
    assert str(caught.value).endswith("SIGSEGV\nfree(): invalid pointer")


def test_an_exit_is_an_error_with_its_code(session: Session) -> None:
    with pytest.raises(WorkerDied) as caught:
        session.call("run", os._exit, 4)
    assert (caught.value.signal, caught.value.exitcode) == (None, 4)


def test_a_garbled_answer_is_a_death(session: Session) -> None:
    with pytest.raises(WorkerDied):
        session.call("run", tasks.babble)
    assert session.call("add").value == 1


def test_after_a_death_the_next_call_has_a_fresh_object(session: Session) -> None:
    before = session.generation
    session.call("add", 5)
    folder = session.tempdir
    with pytest.raises(WorkerDied):
        session.call("run", os._exit, 1)
    assert not folder.exists()
    assert session.call("add", 1).value == 1
    assert session.generation == before + 1


def test_a_death_between_calls_is_reported_by_the_next(session: Session) -> None:
    pid = session.call("pid").value
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied):
        session.call("add")
    assert session.call("add").value == 1


def test_the_time_limit_kills_the_child_with_its_tree(session: Session, tmp_path: Path) -> None:
    for limit_s in tasks.long_enough(tmp_path):
        with pytest.raises(WorkerTimeout) as caught:
            session.call("run", tasks.hang_with_children, tmp_path, limit_s=limit_s)
        assert caught.value.limit_s == limit_s
    assert [pid for pid in tasks.pids_in(tmp_path) if tasks.alive(pid)] == []
    assert session.call("add", limit_s=60).value == 1


def test_the_memory_limit_raises_memory_error_and_spares_the_child(session: Session) -> None:
    before = session.generation
    with pytest.raises(MemoryError):
        session.call("run", tasks.allocate, 300 << 20, memory_bytes=100 << 20)
    assert session.call("run", tasks.allocate, 300 << 20).value == 300 << 20
    assert session.generation == before


def test_shared_memory_beyond_the_limit_is_a_memory_error_and_ends_the_child(
    session: Session,
) -> None:
    before = session.generation
    within = session.call("run", tasks.share_memory, 20 << 20, 0.6, memory_bytes=100 << 20)
    assert within.value == 20 << 20
    with pytest.raises(
        MemoryError, match=r"used \d+ MiB of shared memory, more than the limit of 100"
    ):
        session.call("run", tasks.share_memory, 300 << 20, 600, limit_s=60, memory_bytes=100 << 20)
    assert session.call("add").value == 1
    assert session.generation == before + 1


def test_shared_memory_that_was_there_before_a_call_does_not_count(own_session: Session) -> None:
    own_session.call("run", tasks.keep_shared_memory, 200 << 20)
    more = own_session.call("run", tasks.share_memory, 50 << 20, 0.6, memory_bytes=100 << 20)
    assert more.value == 50 << 20


def test_known_exceptions_are_raised_as_themselves(session: Session) -> None:
    with pytest.raises(ConfigFailure) as failure:
        session.call("run", tasks.refuse_config)
    assert failure.value.status is Status.RESOURCES
    with pytest.raises(ValueError, match="no such tile") as error:
        session.call("run", tasks.fail, "no such tile")
    assert isinstance(error.value.__cause__, RemoteError)
    assert "in fail" in error.value.__cause__.traceback


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
    before = session.generation
    with pytest.raises(RemoteError) as caught:
        session.call("run", call, *argument)
    assert str(caught.value) == text
    assert session.call("add").value == 1
    assert session.generation == before


def test_a_missing_method_is_an_attribute_error(session: Session) -> None:
    with pytest.raises(AttributeError, match="subtract"):
        session.call("subtract")


def test_an_argument_that_cannot_be_sent_leaves_the_session_usable(session: Session) -> None:
    before = session.generation
    with pytest.raises(TypeError, match="an argument of 'echo' cannot be sent"):
        session.call("echo", threading.Lock())
    assert session.call("add").value == 1
    assert session.generation == before


def test_an_interrupt_in_the_middle_of_a_call_never_leaves_an_old_answer(
    session: Session, tmp_path: Path
) -> None:
    before = session.generation

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
    assert session.generation == before + 1


def test_the_child_works_in_its_own_folder_and_prints_nowhere(
    own_session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = own_session.call("run", tasks.surroundings).value
    own_session.call("run", print, "noise")
    assert Path(seen["cwd"]) == Path(seen["TMPDIR"]) == own_session.tempdir
    assert capfd.readouterr() == ("", "")


def test_files_and_helpers_last_from_call_to_call(own_session: Session) -> None:
    own_session.call("run", tasks.litter)
    _, helper = own_session.call("run", tasks.leave_a_child_running).value
    assert (own_session.tempdir / "object.o").exists()
    assert tasks.alive(helper)
    own_session.close()
    assert not tasks.alive(helper)


def test_a_child_of_no_more_use_is_replaced(session: Session) -> None:
    before = session.generation
    session.call("add", 5)
    pid = session.call("pid").value
    session.discard()
    assert not tasks.alive(pid)
    assert session.call("add", 1).value == 1
    assert session.generation == before + 1

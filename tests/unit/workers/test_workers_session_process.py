"""A session's process: how it is made, replaced, limited in parts and ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import worker_tasks as tasks

from whet.workers.answers import WorkerDied, WorkerTimeout
from whet.workers.session import KEPT, Session


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


@pytest.mark.slow
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


@pytest.mark.slow
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

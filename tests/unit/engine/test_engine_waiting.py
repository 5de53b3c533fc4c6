"""Another process tunes the same: who waits says so, keeps to its budget, and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from whet.core.config import Config
from whet.core.event import Event, Noted, RunFinished, RunStarted, Waited, Waiting
from whet.core.process import this_process
from whet.core.run import Outcome, Result
from whet.engine import Interrupted, tune
from whet.engine.settings import Settings
from whet.engine.turns import Turn
from whet.store import MemoryStore, Store, open_store
from whet.testing.fake_target import FakeTarget
from whet.testing.samples import a_run

# A config that finds its number in the file `hold` says so and stays until the file is gone.
# Which process it is comes from the environment, since a global would be part of the kernel.
SCRIPT = """
    import json, logging, os, sys, time
    from pathlib import Path
    import whet
    from whet.core.event import Waiting
    from whet.engine.settings import Settings

    def work(n):
        folder = Path(os.environ["FOLDER"])
        hold = folder / f"hold-{n}"
        if os.environ["ROLE"] == "first" and hold.exists():
            (folder / "held").touch()
            while hold.exists():
                time.sleep(0.01)
        time.sleep(0.002 if n == 1 else 0.015 * n)

    def say(**news):
        print(json.dumps(news), flush=True)

    def on_event(event):
        if isinstance(event, Waiting):
            say(waiting=event.holder.pid, text=str(event.holder), budget=str(event.run.budget))

    class Log(logging.Handler):
        def emit(self, record):
            say(log=record.getMessage(), level=record.levelname)

    def tell(result, **more):
        say(
            source=result.source, outcome=str(result.run.outcome), n=result.config["n"],
            tried=sorted(trial.config["n"] for trial in result.trials), known=result.known,
            measured=result.best.timing is not None, notes=result.notes,
            queue=result.run.cost.wall["queue"], all=result.run.wall_s,
            sum=sum(result.run.cost.wall.values()), **more,
        )

    if __name__ == "__main__":
        options = json.loads(sys.argv[1])
        logging.getLogger("whet").addHandler(Log())
        space = {"n": options.get("space", [3, 2, 1, 4])}
        target = whet.function(work, space, key={}, isolate=options.get("isolate", False))
        try:
            result = whet.tune(
                target, search="grid", budget=options.get("budget"), on_event=on_event, jobs=1,
                store=os.environ["FOLDER"] + "/store.db", settings=Settings(run_limit_s=600.0),
            )
            tell(result)
        except whet.Interrupted as interrupted:
            if interrupted.result is None:
                say(interrupted=True)
            else:
                tell(interrupted.result, interrupted=True)
"""

News = dict[str, Any]


class Terminal:
    """One process that tunes, and what it has said so far."""

    def __init__(self, folder: Path, role: str, **options: Any) -> None:
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "FOLDER": str(folder),
            "ROLE": role,
        }
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "script.py"), json.dumps(options)],
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self, name: str) -> News:
        """The next thing it says that has this name."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            news: News = json.loads(line)
            if name in news:
                return news
        raise AssertionError(f"it ended ({self.process.wait()}) and never said '{name}'")

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


class Desk:
    """A folder with a store, in which a first process is held at one of its configs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store.db"
        self._terminals: list[Terminal] = []
        (folder / "script.py").write_text(textwrap.dedent(SCRIPT))

    def terminal(self, role: str, **options: Any) -> Terminal:
        self._terminals.append(Terminal(self.folder, role, **options))
        return self._terminals[-1]

    def first_held_at(self, n: int, **options: Any) -> Terminal:
        self._hold = self.folder / f"hold-{n}"
        self._hold.touch()
        first = self.terminal("first", **options)
        while not (self.folder / "held").exists():
            assert first.process.poll() is None
            time.sleep(0.01)
        return first

    def release(self) -> None:
        self._hold.unlink()

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.process.kill()
            terminal.process.communicate()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


@pytest.fixture(scope="class")
def midway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Desk, Terminal]]:
    """With a process that has stored three trials of four and stays there."""
    desk = Desk(tmp_path_factory.mktemp("midway"))
    yield desk, desk.first_held_at(4)
    desk.close()


@pytest.fixture(scope="class")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Desk, Terminal]]:
    """With a process that has stored nothing yet and stays there."""
    desk = Desk(tmp_path_factory.mktemp("begun"))
    yield desk, desk.first_held_at(3)
    desk.close()


class TestTwoProcesses:
    @pytest.mark.slow
    def test_the_wait_is_announced_and_booked_and_ends_with_the_others_answer(
        self, desk: Desk
    ) -> None:
        first = desk.first_held_at(4)
        second = desk.terminal("second")
        said = second.hear("waiting")
        assert said["waiting"] == first.process.pid
        assert f"(pid {first.process.pid}, since " in said["text"]
        log = second.hear("log")
        assert log["level"] == "WARNING"
        assert "event=waiting" in log["log"]
        assert f"pid {first.process.pid}" in log["log"]
        desk.release()
        end, found = second.hear("source"), first.hear("source")
        assert (end["source"], end["n"], end["tried"]) == ("stored", found["n"], [])
        assert end["queue"] > 0
        assert end["sum"] == pytest.approx(end["all"])

    @pytest.mark.slow
    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
    def test_a_run_that_was_cut_short_is_gone_on_with(
        self, desk: Desk, how: signal.Signals
    ) -> None:
        first = desk.first_held_at(4)
        second = desk.terminal("second")
        second.hear("waiting")
        first.end(how)
        end = second.hear("source")
        assert (end["source"], end["outcome"], end["n"]) == ("tuned", "finished", 1)
        assert end["known"] + len(end["tried"]) == 4
        # Who is killed in the midst of a first launch takes its config down with it.
        assert (4 in end["tried"]) == (how is signal.SIGINT)
        assert end["queue"] > 0

    @pytest.mark.slow
    def test_a_killed_process_whose_workers_outlive_it_holds_nobody_up(self, desk: Desk) -> None:
        first = desk.first_held_at(3, isolate=True)
        second = desk.terminal("second", isolate=True)
        second.hear("waiting")
        first.end(signal.SIGKILL)
        end = second.hear("source")
        assert (end["source"], end["outcome"], end["n"]) == ("tuned", "finished", 1)

    @pytest.mark.slow
    def test_a_run_within_a_smaller_budget_is_gone_on_with(self, desk: Desk) -> None:
        desk.first_held_at(2, budget="2trials")
        second = desk.terminal("second")
        second.hear("waiting")
        desk.release()
        end = second.hear("source")
        assert (end["source"], end["n"]) == ("tuned", 1)
        assert end["known"] + len(end["tried"]) == 4

    @pytest.mark.slow
    def test_a_finished_run_over_more_configs_is_the_answer(self, desk: Desk) -> None:
        desk.first_held_at(4)
        second = desk.terminal("second", space=[1, 2])
        second.hear("waiting")
        desk.release()
        end = second.hear("source")
        assert (end["source"], end["n"], end["tried"]) == ("stored", 1, [])


class TestASecondProcessThatDoesNotWaitForTheEnd:
    @pytest.mark.medium
    def test_has_the_best_that_is_stored_when_its_budget_ends(
        self, midway: tuple[Desk, Terminal]
    ) -> None:
        desk, first = midway
        end = desk.terminal("second", budget="1s").hear("source")
        assert first.process.poll() is None
        assert (end["source"], end["outcome"], end["n"]) == ("waited", "interrupted", 1)
        assert end["measured"]
        assert f"waiting for pid {first.process.pid}" in end["notes"][-1]
        assert end["queue"] > 0

    @pytest.mark.medium
    def test_has_the_best_that_is_stored_on_ctrl_c(self, midway: tuple[Desk, Terminal]) -> None:
        desk, first = midway
        second = desk.terminal("second")
        second.hear("waiting")
        second.end(signal.SIGINT)
        end = second.hear("interrupted")
        assert first.process.poll() is None
        assert (end["source"], end["n"]) == ("waited", 1)

    @pytest.mark.slow
    def test_has_the_first_config_when_its_budget_ends_before_anything_is_stored(
        self, begun: tuple[Desk, Terminal]
    ) -> None:
        desk, first = begun
        end = desk.terminal("second", budget="1s").hear("source")
        assert (end["source"], end["n"], end["measured"]) == ("waited", 3, False)
        assert f"waiting for pid {first.process.pid}" in end["notes"][-1]

    @pytest.mark.slow
    def test_has_nothing_on_ctrl_c_before_anything_is_stored(
        self, begun: tuple[Desk, Terminal]
    ) -> None:
        desk, _ = begun
        second = desk.terminal("second")
        second.hear("waiting")
        second.end(signal.SIGINT)
        assert second.hear("interrupted") == {"interrupted": True}


def target(*numbers: int, times: dict[int, float] | None = None) -> FakeTarget:
    """`t` takes that many microseconds, or what `times` says."""
    known = times or {}
    return FakeTarget(
        [{"t": t} for t in numbers], lambda config: known.get(config["t"], 1000.0 * config["t"])
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store.db") as store:
        yield store


@contextmanager
def somebody_tunes(what: FakeTarget, store: Store) -> Iterator[None]:
    with Turn(store, what.workload().id) as turn:
        assert turn.take()
        yield


class TestTheWait:
    def test_ends_when_the_setting_says_so_and_measures_nothing_beside_the_other(
        self, store: Store
    ) -> None:
        mine = target(2, 1)
        with somebody_tunes(mine, store):
            result = tune(mine, store=store, settings=Settings(agree_wait_s=0.05))
        assert (result.source, result.config) == ("waited", Config(t=2))
        assert "agree_wait" in result.notes[-1]
        assert mine.looked == []

    def test_leaves_no_run_behind(self, store: Store) -> None:
        mine = target(2, 1)
        with somebody_tunes(mine, store):
            tune(mine, store=store, budget="0.05s")
        assert store.runs(mine.workload().id) == []
        assert tune(mine, store=store).config == Config(t=1)

    @pytest.mark.medium
    def test_events_tell_it_before_the_run_starts(self, store: Store) -> None:
        events: list[Event] = []
        mine = target(2, 1)
        with somebody_tunes(mine, store):
            found, wait = tuned_in_a_thread(mine, store, events.append)
            wait()
        found()
        kinds = [type(event) for event in events]
        assert kinds[:3] == [Waiting, Waited, RunStarted]
        assert kinds[-1] is RunFinished
        assert events[0].holder.own  # type: ignore[union-attr]

    @pytest.mark.medium
    def test_what_was_done_meanwhile_came_before_the_run(self, store: Store) -> None:
        mine = target(2, 1)
        with somebody_tunes(mine, store):
            found, wait = tuned_in_a_thread(mine, store)
            wait()
            store.save_run(a_run(mine.workload(), started=time.time() + 60.0))
        result = found()
        assert store.runs(mine.workload().id)[0].id == result.run.id

    @pytest.mark.medium
    def test_one_that_ends_in_the_best_known_starts_no_run(self, store: Store) -> None:
        events: list[Event] = []
        mine = target(2, 1)
        with somebody_tunes(mine, store):
            tune(mine, store=store, budget="0.5s", on_event=events.append)
        assert [type(event) for event in events] == [Waiting, Waited, Noted, RunFinished]

    def test_an_earlier_runs_best_is_the_best_known(self, store: Store) -> None:
        tune(target(2, 1), store=store)
        more = target(2, 1, 3)
        with somebody_tunes(more, store):
            result = tune(more, store=store, budget="0.05s")
        assert (result.source, result.config) == ("waited", Config(t=1))

    def test_nobody_waits_for_a_store_in_memory(self) -> None:
        mine, store = target(2, 1), MemoryStore()
        with somebody_tunes(mine, store):
            assert tune(mine, store=store).source == "tuned"


def tuned_in_a_thread(
    what: FakeTarget, store: Store, on_event: Callable[[Event], None] = lambda event: None
) -> tuple[Callable[[], Result], Callable[[], object]]:
    """Its result, and what returns once it has said that it waits."""
    waiting, results = threading.Event(), []

    def hear(event: Event) -> None:
        on_event(event)
        if isinstance(event, Waiting):
            waiting.set()

    def run() -> None:
        with open_store(store.location) as own:
            results.append(tune(what, store=own, on_event=hear))

    thread = threading.Thread(target=run)
    thread.start()

    def found() -> Result:
        thread.join()
        return results[0]

    return found, waiting.wait


class TestTheLockFile:
    def lock(self, store: Store) -> Path:
        return Path(store.location).parent / "locks" / "w.lock"

    def test_names_who_has_the_turn(self, store: Store) -> None:
        with Turn(store, "w") as mine, Turn(store, "w") as other:
            assert mine.take()
            assert not other.take()
            assert other.holder.pid == os.getpid()

    def test_is_removed_with_its_folder_when_the_turn_is_over(self, store: Store) -> None:
        with Turn(store, "w") as mine, Turn(store, "v") as other:
            assert mine.take()
            assert other.take()
        assert not self.lock(store).parent.exists()

    def test_that_was_waited_for_and_is_removed_keeps_nobody_else_out(self, store: Store) -> None:
        with Turn(store, "w") as waiting:
            with Turn(store, "w") as first:
                assert first.take()
                assert not waiting.take()
            with Turn(store, "w") as next_one:
                assert next_one.take()
                assert not waiting.take()
                assert waiting.holder.own
            assert waiting.take()

    @pytest.mark.slow
    def test_that_many_processes_make_and_remove_is_had_by_one_at_a_time(
        self, tmp_path: Path
    ) -> None:
        code = (
            "import os, sys\nfrom pathlib import Path\n"
            "from whet.engine.turns import file_lock\n"
            "for _ in range(300):\n"
            "    with file_lock(Path('locks/w.lock'), 60) as had:\n"
            "        os.close(os.open('inside', os.O_CREAT | os.O_EXCL)); os.unlink('inside')\n"
            "        assert had\n"
        )
        several = [subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) for _ in range(4)]
        assert [process.wait() for process in several] == [0] * 4
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\xff\x00 not JSON",
            b"[1, 2]",
            b'{"process": 4711, "since": 0}',
            b'{"process": {"host": "h", "boot": "", "pid": "1", "started": 0}, "since": 1}',
            b'{"process": {"host": "h", "boot": "", "pid": 1, "started": 0}, "since": 1e299}',
            b'{"process": {"host": "h", "boot": "", "pid": -1, "started": 0}, "since": 1}',
            b'{"process": {"host": "\\u001b[2J", "boot": "", "pid": 1, "started": 0}, "since": 1}',
        ],
    )
    def test_that_cannot_be_read_names_nobody(self, store: Store, content: bytes) -> None:
        with Turn(store, "w") as mine, Turn(store, "w") as other:
            assert mine.take()
            self.lock(store).write_bytes(content)
            assert str(other.holder) == "another process is already tuning this"

    def test_of_a_process_that_has_ended_names_nobody(self, store: Store) -> None:
        ended = {**this_process().to_json(), "started": 1}
        with Turn(store, "w") as mine, Turn(store, "w") as other:
            assert mine.take()
            self.lock(store).write_text(json.dumps({"process": ended, "since": 1.0}))
            assert str(other.holder) == "another process is already tuning this"

    def test_of_another_host_names_that(self, store: Store) -> None:
        there = {"host": "node7", "boot": "b", "pid": 4711, "started": 1}
        with Turn(store, "w") as mine, Turn(store, "w") as other:
            assert mine.take()
            self.lock(store).write_text(json.dumps({"process": there, "since": 1.0}))
            assert other.holder.name == "pid 4711 on node7"


class TestARunThatWasCutShort:
    def test_is_decided_before_an_earlier_one_is_taken_for_the_answer(self) -> None:
        store = MemoryStore()
        tune(target(2, 3), store=store)
        more = target(2, 3, 1)
        interrupt_before_the_finals(more, store)
        assert {trial.config["t"] for trial in store.trials(more.workload().id)} == {1, 2, 3}
        result = tune(more, store=store)
        assert (result.config, result.run.outcome) == (Config(t=1), Outcome.FINISHED)
        assert tune(more, store=store).source == "stored"

    def test_leaves_an_earlier_answer_to_the_same_question_alone(self) -> None:
        store = MemoryStore()
        tune(target(2, 3), store=store)
        interrupt_before_the_finals(target(2, 3, 1), store)
        assert tune(target(2, 3), store=store).source == "stored"


def interrupt_before_the_finals(what: FakeTarget, store: Store) -> None:
    """Ctrl-C once every config has its first samples."""

    pressed = threading.Event()

    def hear(event: Event) -> None:
        complete = len(store.trials(what.workload().id)) == what.space.count
        if complete and not pressed.is_set():
            pressed.set()
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        tune(what, store=store, on_event=hear)

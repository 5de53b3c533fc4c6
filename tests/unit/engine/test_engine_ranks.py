"""`tune` among ranks: whose choice counts, and what each rank's store knows afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from whet.core.config import Config
from whet.core.errors import ConfigFailure, TuningFailedError
from whet.core.run import Outcome, Result
from whet.core.status import Status
from whet.core.trial import Trial
from whet.engine import tune
from whet.engine.fallback.untuned import choose
from whet.engine.ranks import Agreed
from whet.engine.settings import Settings
from whet.store import MemoryStore, Store, open_store
from whet.testing.fake_target import FakeTarget
from whet.testing.samples import a_trial


class SharedBoard:
    """One board for threads that stand for ranks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.notes: dict[str, str] = {}
        self._lock = threading.Lock()
        self._rank = threading.local()

    @property
    def rank(self) -> int:
        return int(self._rank.number)

    def enter(self, rank: int) -> None:
        self._rank.number = rank

    def get(self, key: str) -> str | None:
        return self.notes.get(key)

    def set(self, key: str, text: str) -> None:
        self.notes[key] = text

    def swap(self, key: str, expected: str | None, text: str) -> bool:
        with self._lock:
            if self.notes.get(key) != expected:
                return False
            self.notes[key] = text
            return True


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> SharedBoard:
    board = SharedBoard(3)
    monkeypatch.setattr("whet.engine.tuning._in_a_group", lambda: True)
    monkeypatch.setattr("whet.engine.other_processes.group_board", lambda: board)
    return board


def target(fastest: int) -> FakeTarget:
    """The same workload and space everywhere, but what is fastest depends on the rank."""
    return FakeTarget(
        [{"t": t} for t in range(4)],
        lambda config: 1000.0 if config == Config(t=fastest) else 2000.0,
    )


def broken() -> FakeTarget:
    def fail(config: Config) -> float:
        raise ConfigFailure(Status.RUN_ERROR, "no such instruction")

    return FakeTarget([{"t": t} for t in range(4)], fail)


def ask(board: SharedBoard, rank: int, what: FakeTarget, store: Store) -> Result:
    board.enter(rank)
    return tune(what, store=store, settings=Settings(agree_wait_s=60.0))


def alone(what: FakeTarget, store: Store) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whet.engine.other_processes.group_board", lambda: None)
        return tune(what, store=store)


class TestOneChoice:
    def test_a_rank_takes_the_choice_and_measures_nothing(self, board: SharedBoard) -> None:
        first = ask(board, 0, target(1), MemoryStore())
        follower = target(2)
        second = ask(board, 1, follower, MemoryStore())
        assert first.config == second.config == Config(t=1)
        assert follower.looked == []
        assert second.source == "stored"
        assert second.notes == ("rank 0 chose",)

    def test_a_stored_answer_of_the_claimant_is_the_choice(self, board: SharedBoard) -> None:
        store = MemoryStore()
        alone(target(3), store)
        claimant = target(1)
        assert ask(board, 0, claimant, store).config == Config(t=3)
        assert claimant.looked == []
        assert ask(board, 1, target(2), MemoryStore()).config == Config(t=3)

    def test_a_rank_with_another_stored_answer_takes_the_choice(self, board: SharedBoard) -> None:
        store = MemoryStore()
        alone(target(2), store)
        ask(board, 0, target(1), MemoryStore())
        assert ask(board, 1, target(2), store).config == Config(t=1)
        assert ask(board, 1, target(2), store).config == Config(t=1)

    def test_another_device_or_space_is_another_agreement(self, board: SharedBoard) -> None:
        ask(board, 0, target(1), MemoryStore())
        other = FakeTarget(
            [{"t": t} for t in range(5)], lambda config: 1000.0 if config == Config(t=4) else 2e3
        )
        assert ask(board, 1, other, MemoryStore()).config == Config(t=4)
        elsewhere = target(2)
        here = elsewhere.workload()
        device = type(here.device)("another device", "fake", "f2")
        elsewhere.workload = lambda: type(here)(here.kernel, "0", device)  # type: ignore[method-assign]
        assert ask(board, 2, elsewhere, MemoryStore()).config == Config(t=2)

    def test_a_failure_of_the_claimant_is_raised_on_every_rank(self, board: SharedBoard) -> None:
        with pytest.raises(TuningFailedError, match="no such instruction"):
            ask(board, 0, broken(), MemoryStore())
        store = MemoryStore()
        with pytest.raises(TuningFailedError, match=r"no such instruction.*\(on rank 0\)"):
            ask(board, 1, target(2), store)
        (run,) = store.runs(target(2).workload().id)
        assert run.outcome is Outcome.FAILED


class TestWhatTheStoreKnowsThen:
    def test_the_choice_with_the_claimants_own_samples(self, board: SharedBoard) -> None:
        store = MemoryStore()
        first = ask(board, 0, target(1), MemoryStore())
        ask(board, 1, target(2), store)
        (trial,) = store.trials(first.run.workload.id)
        (run,) = store.runs(first.run.workload.id)
        assert trial.timing == first.best.timing
        assert trial.run_id == run.id
        assert (run.best, run.trials, run.search) == (Config(t=1), 0, "agreed")

    def test_a_later_process_without_ranks_uses_the_choice(self, board: SharedBoard) -> None:
        store = MemoryStore()
        alone(target(2), store)
        ask(board, 0, target(1), MemoryStore())
        ask(board, 1, target(2), store)
        later = target(2)
        assert alone(later, store).config == Config(t=1)
        assert later.looked == []
        choice = choose(target(2), store=store)
        assert (choice.config, choice.source) == (Config(t=1), "exact")

    def test_a_store_that_ranks_share_gets_one_run(self, board: SharedBoard) -> None:
        store = MemoryStore()
        for rank in range(3):
            result = ask(board, rank, target(rank), store)
        assert len(store.runs(result.run.workload.id)) == 1

    def test_a_store_that_cannot_be_written_keeps_nobody_from_the_choice(
        self, board: SharedBoard
    ) -> None:
        ask(board, 0, target(1), MemoryStore())
        result = ask(board, 1, target(2), MemoryStore(read_only=True))
        assert result.config == Config(t=1)
        assert "not saved" in result.notes[1]


class TestDecidedByOthersMeanwhile:
    def decided(self, board: SharedBoard, what: FakeTarget, best: Trial) -> None:
        key = f"whet/{what.workload().id}/{what.space.id}"
        agreed = Agreed(2, best).to_json()
        board.notes[key] = json.dumps({"generation": 2, "rank": 2, "agreed": agreed})

    @pytest.mark.medium
    def test_a_claimant_that_ends_late_takes_the_choice_and_remembers_it(
        self, board: SharedBoard
    ) -> None:
        late, store = target(1), MemoryStore()
        choice = a_trial(late.workload(), {"t": 3})

        def times(config: Config) -> float:
            self.decided(board, late, choice)
            return 1000.0 if config == Config(t=1) else 2000.0

        late.times = times
        assert ask(board, 0, late, store).config == Config(t=3)
        best = store.best(late.workload().id)
        assert best is not None
        assert (best.config, best.timing) == (Config(t=3), choice.timing)

    def test_a_choice_that_was_never_measured_is_used_and_not_remembered(
        self, board: SharedBoard
    ) -> None:
        mine, store = target(1), MemoryStore()
        self.decided(board, mine, a_trial(mine.workload(), {"t": 3}, timing=None))
        assert ask(board, 0, mine, store).config == Config(t=3)
        assert store.runs(mine.workload().id) == []


class TestWithoutAGroup:
    def test_who_had_to_wait_for_another_process_finds_its_answer(self, tmp_path: Path) -> None:
        looked: list[int] = []
        start = threading.Barrier(4)

        def one(rank: int) -> None:
            mine = target(rank)
            with open_store(tmp_path / "store.db") as store:
                start.wait()
                found[rank] = tune(mine, store=store).config
            looked.append(len(mine.looked))

        found: dict[int, Config] = {}
        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found.values())) == 1
        assert sorted(looked)[:3] == [0, 0, 0]


LAUNCHER = """
    import json, os, random, signal, sys, time
    from datetime import timedelta
    from multiprocessing import get_context
    import torch.distributed as dist
    import whet
    from whet.engine.settings import Settings

    context = get_context("fork")

    class Kernel:
        def __init__(self, rank, line=None):
            self.noise, self.line = random.Random(rank), line

        def __call__(self, n):
            if self.line is not None:
                self.line.send("tuning")
                time.sleep(1000)
            time.sleep(self.noise.uniform(0, 2e-4))

    def choose(kernel, repeat, store):
        target = whet.function(kernel, {"n": [*range(6)]}, key={"repeat": repeat}, isolate=False)
        return whet.tune(target, store=store, settings=Settings(agree_wait_s=30.0)).config["n"]

    def join(rank, size, line, host):
        if rank == host:
            store = dist.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
            line.send(store.port)
        else:
            store = dist.TCPStore("127.0.0.1", line.recv(), size, False, timedelta(seconds=60))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)

    def start(body, size, host, *more):
        # The store's server is in rank `host`, or, where that is None, outside of all ranks.
        lines, ranks = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            ranks.append(context.Process(target=body, args=(rank, size, theirs, host, *more)))
            ranks[-1].start()
            lines.append(ours)
        if host is None:
            server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
            port = server.port
        else:
            server, port = None, lines[host].recv()
        for rank, line in enumerate(lines):
            if rank != host:
                line.send(port)
        return lines, ranks, server

    def skewed(rank, size, line, host):
        join(rank, size, line, host)
        skew, chosen = random.Random(100 + rank), {}
        for repeat in range(5):
            time.sleep(skew.uniform(0, 0.05))
            if (rank, repeat) != (3, 1):  # a rank that never calls the kernel
                chosen[repeat] = choose(Kernel(rank), repeat, ":memory:")
        line.send(chosen)
        line.recv()

    def doomed(rank, size, line, host, store):
        join(rank, size, line, host)
        choose(Kernel(rank), 1, ":memory:")
        line.send("ready")
        line.recv()
        if rank == 0:
            choose(Kernel(rank, line), 0, ":memory:")
        line.send({0: choose(Kernel(rank), 0, store)})
        line.recv()

    if sys.argv[1] == "skewed":
        lines, ranks, server = start(skewed, 8, None)
    else:
        host = 0 if sys.argv[1] == "host" else None
        lines, ranks, server = start(doomed, 4, host, sys.argv[2])
        for line in lines:
            line.recv()
        lines[0].send("go")
        lines[0].recv()
        for line in lines[1:]:
            line.send("go")
        time.sleep(0.2)
        os.kill(ranks.pop(0).pid, signal.SIGKILL)
        lines.pop(0)
    print(json.dumps([line.recv() for line in lines]))
    for line in lines:
        line.send("end")  # only now, for one of them may serve the store
    for rank in ranks:
        rank.join()
"""


def chosen_by_processes(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """What each rank chose, by kernel."""
    pytest.importorskip("torch.distributed")
    script = folder / "launcher.py"
    script.write_text(textwrap.dedent(LAUNCHER))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environ,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


class TestProcesses:
    @pytest.mark.slow
    def test_eight_that_come_at_different_times_choose_the_same(self, tmp_path: Path) -> None:
        answers = chosen_by_processes(tmp_path, "skewed")
        assert [len(answer) for answer in answers] == [5, 5, 5, 4, 5, 5, 5, 5]
        for repeat in "01234":
            assert len({answer[repeat] for answer in answers if repeat in answer}) == 1

    @pytest.mark.slow
    def test_when_the_one_that_tunes_is_killed_the_rest_choose_the_same(
        self, tmp_path: Path
    ) -> None:
        answers = chosen_by_processes(tmp_path, "killed", ":memory:")
        assert len(answers) == 3
        assert len({answer["0"] for answer in answers}) == 1

    @pytest.mark.slow
    def test_when_the_board_dies_with_it_the_rest_agree_through_a_shared_store(
        self, tmp_path: Path
    ) -> None:
        answers = chosen_by_processes(tmp_path, "host", str(tmp_path / "store.db"))
        assert len(answers) == 3
        assert len({answer["0"] for answer in answers}) == 1

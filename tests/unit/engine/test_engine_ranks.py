"""`tune` among ranks: whose choice counts, and what each rank's store knows afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from whet.core.config import Config
from whet.core.errors import ConfigFailure, TuningFailedError
from whet.core.run import Outcome, Result
from whet.core.status import Status
from whet.engine import tune
from whet.engine.policy import choose
from whet.engine.settings import Settings
from whet.store import Store, open_store
from whet.store.memory import MemoryStore
from whet.testing.fake_target import FakeTarget


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
    monkeypatch.setattr("whet.engine.tuning.group_board", lambda: board)
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
        patch.setattr("whet.engine.tuning.group_board", lambda: None)
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
        assert "not remembered" in result.notes[1]


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

    def test_a_process_that_waited_too_long_tunes_as_well_and_says_so(self, tmp_path: Path) -> None:
        from whet.engine.turns import turn

        mine = target(1)
        with open_store(tmp_path / "store.db") as store:
            other = alone(target(1), MemoryStore()).run
            with turn(store, other, 1.0):
                result = tune(mine, store=store, settings=Settings(agree_wait_s=0.01))
        assert result.config == Config(t=1)
        assert any("another process" in note for note in result.notes)


RANK = """
    import os, random, sys, time, json
    from datetime import timedelta
    import torch.distributed as dist
    import whet

    rank, repeats = int(sys.argv[1]), int(sys.argv[2])
    store = dist.TCPStore("127.0.0.1", int(sys.argv[3]), 8, False, timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=8)
    noise, skew = random.Random(rank), random.Random(100 + rank)

    def work(n):
        time.sleep(noise.uniform(0, 2e-4))

    chosen = []
    for repeat in range(repeats):
        time.sleep(skew.uniform(0, 0.05))
        if rank == int(sys.argv[4]) and repeat == 1:
            continue  # a rank that never calls the kernel
        target = whet.function(
            work, {"n": list(range(6))}, key={"repeat": repeat}, isolate=False
        )
        chosen.append((repeat, whet.tune(target, store=":memory:").config["n"]))
    print(json.dumps(chosen))
    dist.destroy_process_group()
"""


def test_eight_processes_of_a_group_choose_the_same(tmp_path: Path) -> None:
    distributed = pytest.importorskip("torch.distributed")
    script = tmp_path / "rank.py"
    script.write_text(textwrap.dedent(RANK))
    server = distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    command = [sys.executable, str(script)]
    ranks = [_process([*command, str(rank), "5", str(server.port), "3"]) for rank in range(8)]
    said = [rank.communicate(timeout=110) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 8, said
    answers = [dict(json.loads(text)) for text, _ in said]
    assert [len(answer) for answer in answers] == [5, 5, 5, 4, 5, 5, 5, 5]
    for repeat in range(5):
        assert len({answer[repeat] for answer in answers if repeat in answer}) == 1


def _process(command: Sequence[str]) -> Any:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

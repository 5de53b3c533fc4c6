"""Ranks agree on one choice, in a time that is simulated: delays, deaths and pauses are exact."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from whet.core.config import Value
from whet.core.errors import TuningFailedError
from whet.core.run import Result
from whet.core.trial import Trial
from whet.engine.ranks import Agreed, Agreement, BoardLostError, Progress
from whet.testing.samples import a_run, a_trial, a_workload

WORKLOAD = a_workload()
WAIT_S = 300.0
SILENCE_S = 10.0


class Killed(BaseException):
    pass


@dataclass
class Actor:
    rank: int
    wake: float
    order: int
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Simulation:
    """Ranks as threads of which one runs at a time; time passes only while all of them sleep.

    `deaths` are moments at which a rank stops for ever, `pauses` spans in which it stands still.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.time = 0.0
        self.notes: dict[str, str] = {}
        self.deaths: dict[int, float] = {}
        self.pauses: dict[int, tuple[float, float]] = {}
        self.delay: Callable[[], float] = lambda: 0.0
        self.lost_from = float("inf")
        self.tuned: list[int] = []
        self.answers: dict[int, Result | Agreed | BaseException] = {}
        self.ended: dict[int, float] = {}
        self._actors: list[Actor] = []
        self._back = threading.Semaphore(0)
        self._here = threading.local()
        self._made = 0

    def start(self, rank: int, at: float, act: Callable[[], None]) -> None:
        actor = Actor(rank, at, self._made)
        self._made += 1
        self._actors.append(actor)

        def body() -> None:
            actor.go.acquire()
            self._here.actor = actor
            try:
                self.check_alive()
                act()
            except Killed:
                pass
            finally:
                self._actors.remove(actor)
                self._back.release()

        threading.Thread(target=body, daemon=True).start()

    def run(self) -> None:
        while self._actors:
            for actor in self._actors:
                begin, end = self.pauses.get(actor.rank, (0.0, 0.0))
                if begin <= actor.wake < end:
                    actor.wake = end
            actor = min(self._actors, key=lambda actor: (actor.wake, actor.order))
            self.time = max(self.time, actor.wake)
            assert self.time < 10_000, "somebody waits for ever"
            actor.go.release()
            self._back.acquire()

    def check_alive(self) -> None:
        if self.time >= self.deaths.get(self._here.actor.rank, float("inf")):
            raise Killed

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.check_alive()
        actor: Actor = self._here.actor
        actor.wake = self.time + seconds
        self._back.release()
        actor.go.acquire()
        self.check_alive()

    @contextmanager
    def every(self, seconds: float, act: Callable[[], None]) -> Iterator[None]:
        ended = False

        def repeat() -> None:
            while not ended:
                act()
                self.sleep(seconds)

        self.start(self._here.actor.rank, self.time, repeat)
        try:
            yield
        finally:
            ended = True


class FakeBoard:
    def __init__(self, simulation: Simulation, rank: int) -> None:
        self.rank = rank
        self.size = simulation.size
        self._simulation = simulation

    def _reach(self) -> None:
        self._simulation.sleep(self._simulation.delay())
        if self._simulation.time >= self._simulation.lost_from:
            raise BoardLostError("gone")

    def get(self, key: str) -> str | None:
        self._reach()
        return self._simulation.notes.get(key)

    def set(self, key: str, text: str) -> None:
        self._reach()
        self._simulation.notes[key] = text

    def swap(self, key: str, expected: str | None, text: str) -> bool:
        self._reach()
        if self._simulation.notes.get(key) != expected:
            return False
        self._simulation.notes[key] = text
        return True


def result_of(rank: int) -> Result:
    """Every rank on its own would choose something else."""
    trial = a_trial(WORKLOAD, {"BM": rank})
    return Result(a_run(WORKLOAD, {"BM": rank}), trial, None, (trial,))


def join(
    simulation: Simulation,
    rank: int,
    at: float = 0.0,
    *,
    takes: float = 5.0,
    raises: BaseException | None = None,
    finds_at: float = float("inf"),
) -> None:
    """A rank that asks at `at`, and would tune for `takes` seconds; at `finds_at` of them it has
    a best."""
    began: list[float] = []

    def tune() -> Result:
        began.append(simulation.time)
        simulation.tuned.append(rank)
        simulation.sleep(takes)
        if raises is not None:
            raise raises
        return result_of(rank)

    def progress() -> Progress:
        best: Trial | None = None
        if began and simulation.time >= began[0] + finds_at:
            best = a_trial(WORKLOAD, {"BM": 100 + rank})
        return Progress(1 if best else 0, best)

    def act() -> None:
        agreement = Agreement(
            FakeBoard(simulation, rank),
            "id",
            WAIT_S,
            tune=tune,
            progress=progress,
            stopgap=lambda: Agreed(rank, a_trial(WORKLOAD, {"BM": -1}, timing=None)),
            clock=simulation,
        )
        try:
            simulation.answers[rank] = agreement.reach()
        except (Exception, KeyboardInterrupt) as error:
            simulation.answers[rank] = error
        simulation.ended[rank] = simulation.time

    simulation.start(rank, at, act)


def chosen(simulation: Simulation) -> dict[int, Value]:
    found = {}
    for rank, answer in simulation.answers.items():
        assert isinstance(answer, Result | Agreed), answer
        assert answer.best is not None
        found[rank] = answer.best.config["BM"]
    return found


class TestInPeace:
    def test_the_first_to_ask_tunes_and_all_use_its_choice(self) -> None:
        simulation = Simulation(4)
        for rank, at in enumerate([3.0, 1.0, 0.5, 2.0]):
            join(simulation, rank, at)
        simulation.run()
        assert simulation.tuned == [2]
        assert chosen(simulation) == dict.fromkeys(range(4), 2)

    def test_a_rank_that_never_asks_holds_nobody_up(self) -> None:
        simulation = Simulation(8)
        join(simulation, 5)
        join(simulation, 6)
        simulation.run()
        assert chosen(simulation) == {5: 5, 6: 5}

    def test_who_asks_after_the_decision_takes_it(self) -> None:
        simulation = Simulation(2)
        join(simulation, 0)
        join(simulation, 1, at=5000.0)
        simulation.run()
        assert simulation.tuned == [0]
        assert chosen(simulation) == {0: 0, 1: 0}

    @pytest.mark.slow
    def test_a_tuning_that_takes_long_is_not_taken_for_a_death(self) -> None:
        simulation = Simulation(3)
        for rank in range(3):
            join(simulation, rank, takes=20 * SILENCE_S)
        simulation.run()
        assert simulation.tuned == [0]
        assert chosen(simulation) == dict.fromkeys(range(3), 0)

    @pytest.mark.medium
    def test_a_failure_to_tune_is_everybodys(self) -> None:
        simulation = Simulation(3)
        for rank in range(3):
            join(simulation, rank, raises=TuningFailedError("no config works"))
        simulation.run()
        assert simulation.tuned == [0]
        assert isinstance(simulation.answers[0], TuningFailedError)
        for rank in (1, 2):
            answer = simulation.answers[rank]
            assert isinstance(answer, Agreed)
            assert (answer.best, answer.reason) == (None, "no config works")


class TestDeaths:
    @pytest.mark.medium
    def test_the_rank_after_the_dead_one_takes_over(self) -> None:
        simulation = Simulation(8)
        join(simulation, 5, takes=60.0)
        for rank in (0, 2, 3, 6, 7):
            join(simulation, rank, at=1.0 + rank / 10)
        simulation.deaths[5] = 20.0
        simulation.run()
        assert simulation.tuned == [5, 6]
        assert chosen(simulation) == dict.fromkeys((0, 2, 3, 6, 7), 6)
        assert max(simulation.ended.values()) < 20.0 + 2 * SILENCE_S + 5.0

    @pytest.mark.medium
    def test_where_that_one_is_dead_too_the_next_does(self) -> None:
        simulation = Simulation(4)
        for rank in range(4):
            join(simulation, rank, at=rank / 10)
        simulation.deaths.update({0: 2.0, 1: 4.0})
        simulation.run()
        assert simulation.tuned == [0, 2]
        assert chosen(simulation) == {2: 2, 3: 2}

    @pytest.mark.medium
    def test_a_successor_that_dies_while_it_tunes_has_a_successor(self) -> None:
        simulation = Simulation(4)
        for rank in range(4):
            join(simulation, rank, at=rank / 10, takes=30.0)
        simulation.deaths.update({0: 2.0, 1: 25.0})
        simulation.run()
        assert simulation.tuned == [0, 1, 2]
        assert chosen(simulation) == {2: 2, 3: 2}

    @pytest.mark.medium
    def test_a_claimant_that_gives_up_says_so_and_nobody_waits_for_its_silence(self) -> None:
        simulation = Simulation(3)
        join(simulation, 0, raises=KeyboardInterrupt())
        join(simulation, 1, at=1.0)
        join(simulation, 2, at=1.0)
        simulation.run()
        assert isinstance(simulation.answers.pop(0), KeyboardInterrupt)
        assert chosen(simulation) == {1: 1, 2: 1}
        assert max(simulation.ended.values()) < 5.0 + 5.0 + 1.0

    @pytest.mark.medium
    def test_a_claimant_that_comes_back_changes_nothing_and_takes_the_new_choice(self) -> None:
        simulation = Simulation(3)
        for rank in range(3):
            join(simulation, rank, at=rank / 10)
        simulation.pauses[0] = (2.0, 100.0)
        simulation.run()
        assert simulation.tuned == [0, 1]
        assert chosen(simulation) == dict.fromkeys(range(3), 1)

    @pytest.mark.medium
    def test_a_claimant_that_comes_back_before_its_successor_is_done_follows_it(self) -> None:
        simulation = Simulation(2)
        join(simulation, 0)
        join(simulation, 1, at=0.1, takes=50.0)
        simulation.pauses[0] = (2.0, 30.0)
        simulation.run()
        assert chosen(simulation) == {0: 1, 1: 1}


class TestDeadlines:
    @pytest.mark.slow
    def test_when_time_is_up_all_use_the_claimants_best_so_far_and_so_does_it(self) -> None:
        simulation = Simulation(3)
        for rank in range(3):
            join(simulation, rank, takes=2 * WAIT_S, finds_at=50.0)
        simulation.run()
        assert simulation.tuned == [0]
        assert chosen(simulation) == dict.fromkeys(range(3), 100)
        assert max(simulation.ended[1], simulation.ended[2]) < WAIT_S + 5.0

    @pytest.mark.slow
    def test_when_nothing_was_found_by_then_all_use_one_stopgap(self) -> None:
        simulation = Simulation(3)
        for rank in range(3):
            join(simulation, rank, takes=2 * WAIT_S)
        simulation.run()
        assert chosen(simulation) == dict.fromkeys(range(3), -1)

    @pytest.mark.medium
    def test_a_board_that_is_lost_ends_the_wait_and_leaves_the_claimant_its_result(self) -> None:
        simulation = Simulation(2)
        join(simulation, 0, takes=20.0)
        join(simulation, 1, at=1.0)
        simulation.lost_from = 10.0
        simulation.run()
        assert isinstance(simulation.answers[0], Result)
        assert isinstance(simulation.answers[1], BoardLostError)
        assert simulation.ended[1] < 11.0

    @pytest.mark.slow
    def test_a_board_that_refuses_every_decision_is_a_lost_board(self) -> None:
        simulation = Simulation(2)
        simulation.notes["whet/id"] = '{"rank": 0, "generation": 1, "agreed": null}'  # other order
        join(simulation, 1)
        simulation.run()
        assert isinstance(simulation.answers[1], BoardLostError)

    def test_a_note_that_cannot_be_read_is_a_lost_board(self) -> None:
        simulation = Simulation(2)
        simulation.notes["whet/id"] = '{"version": 99}'
        join(simulation, 0)
        simulation.run()
        assert isinstance(simulation.answers[0], BoardLostError)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(60))
def test_survivors_agree_and_nobody_waits_for_ever(seed: int) -> None:
    rng = random.Random(seed)
    simulation = Simulation(rng.choice([2, 3, 8, 16]))
    simulation.delay = lambda: rng.choice([0.0, 0.001, 0.05, 0.5])
    for rank in range(simulation.size):
        takes = rng.choice([0.0, 1.0, 15.0, 400.0])
        join(
            simulation, rank, rng.uniform(0, 20), takes=takes, finds_at=rng.choice([1.0, 50.0, 1e9])
        )
        if rng.random() < 0.3:
            simulation.deaths[rank] = rng.uniform(0, 60)
        elif rng.random() < 0.3:
            begin = rng.uniform(0, 60)
            simulation.pauses[rank] = (begin, begin + rng.uniform(1, 300))
    simulation.run()
    assert simulation.answers.keys() >= set(range(simulation.size)) - simulation.deaths.keys()
    assert len(set(chosen(simulation).values())) <= 1

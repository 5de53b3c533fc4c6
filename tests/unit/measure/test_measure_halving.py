"""Successive halving: who goes on, after how many samples, and what noise does to it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from whet.measure import RacePolicy, Request
from whet.measure.halving import Halving
from whet.testing.fakes import FakeDevice, NoiseModel


def field(count: int, lead: float = 0.05) -> dict[str, float]:
    """ "0" is the best, and each is `lead` slower than the one before."""
    return {str(k): 1e5 * (1 + lead * k) for k in range(count)}


def arrived(truth: dict[str, float], device: FakeDevice | None = None, **policy: int) -> Halving:
    race = Halving(replace(RacePolicy(), **policy))
    device = device or FakeDevice()
    for order, id in enumerate(truth):
        race.enter(id, order)
        race.record(id, device.sample(truth[id], race.policy.first_samples))
    return race


def finish(race: Halving, truth: dict[str, float], device: FakeDevice | None = None) -> None:
    device = device or FakeDevice()
    while requests := race.plan():
        for request in requests:
            if race.verdict(request.id) == "in":
                race.record(request.id, device.sample(truth[request.id], request.samples))


def samples(race: Halving) -> dict[str, int]:
    return {place.id: place.samples for place in race.standing()}


class TestHalving:
    def test_the_better_half_doubles_its_samples_down_to_the_finalists(self) -> None:
        truth = field(32)
        race = arrived(truth, first_samples=1, finalists=4)
        finish(race, truth)
        taken = samples(race)
        assert [taken[str(k)] for k in (31, 16)] == [1, 1]
        assert [taken[str(k)] for k in (15, 8)] == [2, 2]
        assert [taken[str(k)] for k in (7, 4)] == [3, 3]
        assert race.live == ("0", "1", "2", "3")

    def test_nobody_is_out_while_more_are_to_come(self) -> None:
        race = arrived(field(40, lead=1.0))
        assert race.plan(more=True) == []
        assert len(race.live) == 40

    def test_a_pass_asks_once_for_each_and_the_next_turns_the_order(self) -> None:
        race = arrived(field(24))
        first = race.plan()
        assert [request.id for request in first] == [str(k) for k in range(12)]
        for request in first:
            race.record(request.id, [1e5])
        assert race.plan() == first[::-1]

    def test_a_plan_half_done_goes_on_where_it_stopped(self) -> None:
        race = arrived(field(24))
        first = race.plan()
        race.record(first[0].id, [1e5])
        assert race.plan() == first[1:]

    def test_few_enough_need_none(self) -> None:
        assert arrived(field(4)).plan() == []

    def test_the_losers_of_the_first_look_are_told_with_the_next_sample(self) -> None:
        race = arrived(field(12))
        (request, *_) = race.plan()
        assert race.verdict("11") == "out"
        exits = race.record(request.id, [1e5])
        assert [gone.id for gone in exits] == [str(k) for k in range(6, 12)]

    def test_the_reason_says_how_far_one_came(self) -> None:
        race = arrived(field(12))
        race.plan()
        assert race.reason("11") == "155 µs is place 12 of 12 after the first look; 6 go on"
        assert race.reason("0") == ""

    def test_the_last_rung_ends_at_the_most_samples(self) -> None:
        truth = field(64)
        race = arrived(truth, first_samples=1, finalists=2, max_samples=2)
        finish(race, truth)
        assert race.live == ("0", "1")
        assert max(samples(race).values()) <= 1 + 2


class TestEntrants:
    def test_stored_samples_stand_for_a_first_look(self) -> None:
        race = arrived(field(12))
        race.enter("stored", 99, prior=[0.5e5] * 10)
        assert Request("stored", 1) in race.plan()
        assert race.incumbent == "stored"

    def test_one_without_a_sample_is_looked_at_first(self) -> None:
        race = arrived(field(12))
        race.enter("new", 99)
        assert race.plan() == [Request("new", race.policy.first_samples)]

    def test_one_who_arrives_late_starts_it_over(self) -> None:
        race = arrived(field(16))
        for request in race.plan():
            race.record(request.id, [1e5])
        race.enter("late", 99)
        race.record("late", [0.9e5, 0.9e5])
        assert "late" in [request.id for request in race.plan()]
        assert race.verdict("15") == "out"

    def test_one_who_fails_is_out_and_holds_nobody_up(self) -> None:
        race = arrived(field(16))
        requests = race.plan()
        for request in requests[:-1]:
            race.record(request.id, [1e5])
        race.drop(requests[-1].id, "crashed")
        assert race.reason(requests[-1].id) == "crashed"
        assert requests[-1].id not in [request.id for request in race.plan()]

    def test_all_may_fail(self) -> None:
        race = arrived(field(6))
        for request in race.plan():
            race.drop(request.id, "crashed")
        assert race.live == ()
        assert race.incumbent is None
        assert race.plan() == []

    def test_entering_twice_is_refused(self) -> None:
        race = arrived(field(1))
        with pytest.raises(ValueError, match="already in the race"):
            race.enter("0", 1)

    def test_before_the_first_sample_there_is_no_time(self) -> None:
        race = Halving()
        race.enter("a", 0)
        assert race.standing()[0].ns is None
        assert race.incumbent is None

    def test_equal_times_stand_in_the_authors_order(self) -> None:
        race = Halving()
        for id, order in (("b", 1), ("a", 0)):
            race.enter(id, order)
            race.record(id, [1e5, 1e5])
        assert race.live == ("a", "b")


def shuffled(seed: int) -> dict[str, float]:
    """One at 100 µs somewhere among 39 others that are 3 % to 80 % slower."""
    rng = random.Random(seed)
    truth = {str(k): 1e5 * rng.uniform(1.03, 1.8) for k in range(40)}
    truth[str(rng.randrange(40))] = 1e5
    return truth


def keeps_the_best(noise: NoiseModel, seed: int) -> bool:
    truth, device = shuffled(seed), FakeDevice(noise, seed)
    race = arrived(truth, device)
    finish(race, truth, device)
    return min(truth, key=truth.__getitem__) in race.live


@pytest.mark.parametrize(
    ("noise", "share"),
    [
        (NoiseModel(gaussian=0.02), 0.97),
        (NoiseModel(0.01, tail_chance=0.15, tail_factor=10.0), 0.85),
        (NoiseModel(0.01, 0.05, 3.0, drift_per_s=5.0), 0.95),
        (NoiseModel(0.01, 0.05, 3.0, throttle=((0.01, 1.2),)), 0.95),
    ],
    ids=["noise", "heavy tails", "drift", "slows down"],
)
def test_the_best_is_among_the_finalists(noise: NoiseModel, share: float) -> None:
    kept = [keeps_the_best(noise, seed) for seed in range(100)]
    assert sum(kept) / len(kept) >= share


def test_the_same_samples_give_the_same_race() -> None:
    def run() -> list[str]:
        truth, device = shuffled(1), FakeDevice(NoiseModel(0.03, 0.05), seed=4)
        race = arrived(truth, device)
        finish(race, truth, device)
        return [f"{place}" for place in race.standing()]

    assert run() == run()


def test_its_passes_can_be_read_for_those_who_took_part_in_them() -> None:
    truth = field(16)
    race = arrived(truth)
    finish(race, truth)
    assert race.passes(["0", "15"]) == []
    assert all(one == pytest.approx({"0": truth["0"]}) for one in race.passes(["0"]))
    assert race.passes(["0"])

"""Race and duel together, over many seeds on a device whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from whet.measure.racing.duel import Duel, DuelOutcome
from whet.measure.racing.race import Race
from whet.testing.fakes import FakeDevice, NoiseModel

SEEDS = 200
NOISY = NoiseModel(gaussian=0.02, tail_chance=0.05, tail_factor=3.0)


@dataclass(frozen=True)
class Tuned:
    outcome: DuelOutcome
    regret: float
    samples_each: float


def tune(truth: dict[str, float], noise: NoiseModel, seed: int) -> Tuned:
    """Everyone arrives in turn with a first look, then the race, then the duel."""
    device, race = FakeDevice(noise, seed), Race()
    taken = 0

    def sample(id: str, samples: int) -> None:
        nonlocal taken
        taken += samples
        race.record(id, device.sample(truth[id], samples))

    for order, id in enumerate(truth):
        race.enter(id, order)
        sample(id, race.policy.first_samples)
        for request in race.plan(more=True):
            sample(request.id, request.samples)
    while requests := race.plan():
        for request in requests:
            sample(request.id, request.samples)
    duel = Duel(race.live, earlier=race.passes(race.live))
    while ids := duel.next_round():
        taken += len(ids)
        duel.record_round({id: device.sample(truth[id])[0] for id in ids})
    outcome = duel.outcome
    assert outcome.winner is not None
    regret = truth[outcome.winner] / min(truth.values()) - 1
    return Tuned(outcome, regret, taken / len(truth))


def forty(seed: int, slowest: float = 1.8, lead: float = 0.03) -> dict[str, float]:
    """One at 100 µs somewhere among others that are at least `lead` slower."""
    rng = random.Random(1000 + seed)
    truth = {str(k): 1e5 * rng.uniform(1 + lead, slowest) for k in range(40)}
    truth[str(rng.randrange(40))] = 1e5
    return truth


def share(answers: Iterable[bool]) -> float:
    counted = list(answers)
    return sum(counted) / len(counted)


@pytest.mark.slow
def test_the_best_by_three_percent_is_found_under_noise_and_outliers() -> None:
    runs = [tune(forty(seed), NOISY, seed) for seed in range(SEEDS)]
    assert share(run.regret <= 0.01 for run in runs) >= 0.95
    assert sum(run.samples_each for run in runs) / SEEDS <= 5


@pytest.mark.medium
def test_a_close_field_takes_more_samples_and_still_gives_the_best() -> None:
    runs = [tune(forty(seed, slowest=1.1), NOISY, seed) for seed in range(60)]
    assert share(run.regret <= 0.01 for run in runs) >= 0.95
    assert sum(run.samples_each for run in runs) / 60 <= 13


QUIET = NoiseModel(gaussian=0.003, tail_chance=0.02, tail_factor=3.0)


@pytest.mark.medium
def test_on_a_quiet_device_the_first_looks_nearly_suffice() -> None:
    runs = [tune(forty(seed), QUIET, seed) for seed in range(60)]
    assert share(run.regret <= 0.01 for run in runs) >= 0.95
    assert sum(run.samples_each for run in runs) / 60 <= 3


@pytest.mark.medium
@pytest.mark.parametrize(
    "noise",
    [
        NoiseModel(0.01, 0.05, 3.0, drift_per_s=5.0),
        NoiseModel(0.01, 0.05, 3.0, throttle=((0.004, 1.2),)),
        NoiseModel(0.01, 0.05, 3.0, throttle=((0.0, 1.2), (0.005, 1.0))),
    ],
    ids=["drift", "slows down", "speeds up"],
)
def test_a_device_that_changes_pace_during_the_race_does_not_hide_the_best(
    noise: NoiseModel,
) -> None:
    runs = [tune(forty(seed), noise, seed) for seed in range(60)]
    assert share(run.regret <= 0.01 for run in runs) >= 0.95


@pytest.mark.medium
def test_heavy_tails_do_not_put_the_best_out() -> None:
    wild = NoiseModel(gaussian=0.01, tail_chance=0.15, tail_factor=10.0)
    runs = [tune(forty(seed), wild, seed) for seed in range(60)]
    assert share(run.regret <= 0.01 for run in runs) >= 0.93


@pytest.mark.medium
@pytest.mark.parametrize("noise", [NOISY, NoiseModel(gaussian=0.002)], ids=["noisy", "quiet"])
@pytest.mark.parametrize("count", [2, 4])
def test_identical_kernels_are_declared_equal(noise: NoiseModel, count: int) -> None:
    truth = {str(k): 1e5 for k in range(count)}
    outcomes = [tune(truth, noise, seed).outcome for seed in range(SEEDS)]
    assert share(len(outcome.equals) == count - 1 for outcome in outcomes) >= 0.90
    assert share(bool(outcome.beaten) for outcome in outcomes) <= 0.05

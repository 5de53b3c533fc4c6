"""C kernels of which many are poisoned: the best is found, and nothing else is harmed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from faults_kernel import BEST, LIMITS, NASTY, PATIENT, TWELVE, Poison, healthy, kernel, poisoned
from faults_processes import check_nothing_left, count, nothing_held

import whet
from whet.core.config import Config
from whet.core.run import Result
from whet.core.status import Status
from whet.engine import Settings
from whet.store import MemoryStore

RUNS = count(3, 200)
BLOCKS = count(3, 50)
SPAWNED_EVERY = 3
RUN_LIMITS_S = (LIMITS.run_limit_s, 2.0, 15.0)


LEFT_SPINNING = {
    Poison.LEAVES_THREADS_SPINNING: "leaves 4 threads running after it returned",
    Poison.LEAVES_A_PROCESS_SPINNING: "leaves 1 process running after it returned",
}


def tune_shuffled(
    configs: list[dict[str, int]], seed: int, forked: bool, limits: Settings
) -> Result:
    """The author's first config, the order of the list and that of the search are all random."""
    shuffled = list(configs)
    random.Random(seed).shuffle(shuffled)
    target = kernel(shuffled, forked)
    return whet.tune(target, store=MemoryStore(), settings=limits, search="random", seed=seed)


def tuned(
    configs: list[dict[str, int]], seed: int, forked: bool, expected: dict[Poison, Status]
) -> Result:
    """With more time where the machine paused for longer than the limit, and one was cut that
    should have ended by itself."""
    for run_limit_s in RUN_LIMITS_S:
        limits = replace(LIMITS, run_limit_s=run_limit_s)
        result = tune_shuffled(configs, seed, forked, limits)
        cut = [t.config["POISON"] for t in result.trials if t.status is Status.RUN_TIMEOUT]
        if all(poison and expected[Poison(poison)] is Status.RUN_TIMEOUT for poison in cut):
            break
    return result


def statuses(result: Result) -> dict[Poison, Status]:
    """Of the poisoned configs."""
    by_number = {trial.config["POISON"]: trial.status for trial in result.trials}
    return {poison: by_number[poison] for poison in Poison if poison and poison in by_number}


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_best_of_40_configs_is_found_though_12_are_poisoned(block: int, scratch: Path) -> None:
    configs = healthy(28) + poisoned(TWELVE)
    for run in range(block, RUNS, BLOCKS):
        with nothing_held(scratch):
            result = tuned(configs, run, forked=run % SPAWNED_EVERY != 0, expected=TWELVE)
        assert (result.config, statuses(result)) == (BEST, TWELVE), f"run {run}"


@pytest.mark.slow
@pytest.mark.parametrize("poison", NASTY)
def test_whatever_a_config_does_to_its_process_the_others_are_measured(
    poison: Poison, scratch: Path
) -> None:
    for seed in range(count(1, 5)):
        configs = healthy(5) + poisoned([poison], work=9)
        with nothing_held(scratch):
            result = tuned(configs, seed, (poison + seed) % 2 == 0, NASTY)
        assert (result.config, statuses(result)) == (BEST, {poison: NASTY[poison]})
        assert all(trial.status.measured for trial in result.trials if not trial.config["POISON"])


@pytest.mark.slow
@pytest.mark.parametrize("poison", LEFT_SPINNING)
def test_what_a_config_leaves_spinning_fails_it_and_disturbs_no_other(
    poison: Poison, scratch: Path
) -> None:
    for seed in range(count(1, 10)):
        configs = healthy(5) + poisoned([poison])
        result = tune_shuffled(configs, seed, forked=(poison + seed) % 2 == 0, limits=PATIENT)
        assert (result.config, statuses(result)) == (BEST, {poison: Status.RUN_ERROR})
        (blamed,) = (trial for trial in result.trials if trial.config["POISON"])
        assert LEFT_SPINNING[poison] in blamed.error
        check_nothing_left(scratch)


@pytest.mark.slow
def test_a_config_does_not_die_of_what_another_left_in_its_process(scratch: Path) -> None:
    """An alarm goes off some configs later, whoever is being measured then."""
    for seed in range(count(1, 20)):
        configs = healthy(20) + poisoned([Poison.SETS_AN_ALARM], work=9)
        result = tune_shuffled(configs, seed, forked=True, limits=PATIENT)
        blamed = {t.config: t.error for t in result.trials if not t.status.measured}
        assert set(blamed) <= {Config(POISON=int(Poison.SETS_AN_ALARM), WORK=9)}, blamed
        assert result.config == BEST
        check_nothing_left(scratch)

"""Configs that end the process which tunes them: the next one knows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults_copies import Copies
from faults_processes import count

KINDS = ("segfault", "abort", "exit", "kill")

Told = Callable[..., dict[str, Any] | None]


@pytest.fixture(scope="module")
def told_by(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """What a program printed, in a process of its own; None where it did not live to say so."""
    copies = Copies(tmp_path_factory.mktemp("copies"))

    def told_by(program: str, *arguments: str) -> dict[str, Any] | None:
        done = copies.run(program, *arguments)
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return found
        assert "Traceback" not in done.stdout, done.stdout
        return None

    yield told_by
    copies.close()


def tuned(
    told_by: Told, store: Path, configs: int, seed: int, culprits: dict[int, str]
) -> dict[str, Any] | None:
    arguments = [str(store), str(configs), str(seed), *(f"{n}={k}" for n, k in culprits.items())]
    return told_by("faults_marks.py", *arguments)


def until_one_lives(
    told_by: Told, store: Path, configs: int, seed: int, culprits: dict[int, str]
) -> tuple[dict[str, Any], int]:
    """What the first process that lived found, and how many died before."""
    for deaths in range(2 * len(culprits) + 1):
        found = tuned(told_by, store, configs, seed, culprits)
        if found is not None:
            return found, deaths
    raise AssertionError("as many processes died as there are culprits, twice")


@pytest.mark.parametrize("kind", KINDS)
def test_the_run_after_a_crash_names_the_culprit_and_finishes(
    told_by: Told, tmp_path: Path, kind: str
) -> None:
    store = tmp_path / "store.db"
    found, deaths = until_one_lives(told_by, store, configs=12, seed=1, culprits={7: kind})
    assert 1 <= deaths <= 2
    status, error = found["trials"]["7"]
    assert status == "run_error"
    assert "died" in error
    assert all(
        status in ("ok", "outraced") for n, (status, _) in found["trials"].items() if n != "7"
    )
    assert found["runs"] == ["finished", *["interrupted"] * deaths]
    assert found["marks"] == 0


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(count(ci=1, full=20)))
def test_five_culprits_at_random_places_are_found_one_after_another(
    told_by: Told, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    culprits = {n: chance.choice(KINDS) for n in chance.sample(range(40), 5)}
    found, deaths = until_one_lives(told_by, tmp_path / "store.db", 40, seed, culprits)
    failed = {int(n) for n, (status, _) in found["trials"].items() if status == "run_error"}
    assert failed == set(culprits)
    assert len(found["trials"]) == 40
    assert found["best"] not in culprits
    assert deaths >= 5
    again = tuned(told_by, tmp_path / "store.db", 40, seed, culprits)
    assert again is not None
    assert again["best"] == found["best"]


@pytest.fixture
def review(told_by: Told, tmp_path: Path) -> Told:
    def review(how: str, version: str, *culprit: str) -> dict[str, Any] | None:
        return told_by("faults_review.py", how, str(tmp_path / "store.db"), version, *culprit)

    return review


def test_after_a_crash_between_calls_the_next_process_leaves_the_culprit_alone(
    review: Told,
) -> None:
    assert review("refine", "1", "3") is None
    refined = review("refine", "1", "3")
    assert refined is not None
    assert (refined["used"], refined["marks"]) == (2, 1)
    assert "3" not in refined["trials"]


@pytest.mark.medium
@pytest.mark.parametrize("how", ["refine", "verify"])
def test_after_a_crash_outside_of_a_tuning_the_next_one_names_the_culprit(
    review: Told, how: str
) -> None:
    if how == "verify":
        assert review("tune", "1") is not None
    assert review(how, "2", "3") is None
    tuned = review("tune", "2", "3")
    assert tuned is not None
    assert (tuned["used"], tuned["marks"]) == (2, 0)
    status, error = tuned["trials"]["3"]
    assert status == "run_error"
    assert "died" in error


@pytest.mark.slow
def test_a_pick_that_ended_its_verification_fails_the_next_one(review: Told) -> None:
    tuned = review("tune", "1")
    assert tuned is not None
    assert tuned["used"] == 3
    assert review("verify", "2", "3") is None
    verified = review("verify", "2", "3")
    assert verified is not None
    assert verified["verdict"].startswith("fails: run_error: the process that first ran it died")

"""Builds begun before their runs: with little effort nobody waits for the ones that take long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from whet.builds.job import Built, Job
from whet.core.config import Config
from whet.engine.ahead import Ahead, Prospect
from whet.engine.settings import Settings

pytestmark = pytest.mark.medium

# Nobody would wait for it in a test.
FOR_EVER = 600.0


def job(config: Config, seconds: float) -> Job:
    def build() -> Built:
        time.sleep(seconds)
        return Built(str(config))

    return Job(build, (), f"{config.id}-{time.monotonic_ns()}")


def begun(ahead: Ahead, seconds: list[float], *, partial: bool = True) -> Prospect:
    configs = tuple(Config({"t": place}) for place in range(len(seconds)))
    prospect = Prospect("kernel", "workload", configs, partial=partial)
    ahead.begin(prospect, [(c, job(c, s)) for c, s in zip(configs, seconds, strict=True)])
    return prospect


@pytest.fixture
def ahead() -> Iterator[Ahead]:
    made = Ahead(Settings(), jobs=4)
    yield made
    made.close()


def places(prospect: Prospect) -> list[Any]:
    return [config["t"] for config in prospect.configs]


def test_a_build_that_takes_much_longer_than_the_others_is_left_out(ahead: Ahead) -> None:
    prospect = begun(ahead, [0.05] * 3 + [FOR_EVER] + [0.05] * 2)
    ahead.wait([prospect], timeout=None)
    while ahead.left(prospect):
        ahead.any_due([prospect], 0.1)
    assert 0 in places(prospect)
    assert 3 not in places(prospect)


def test_the_authors_first_is_waited_for(ahead: Ahead) -> None:
    prospect = begun(ahead, [3.0, 0.05, 0.05, 0.05, FOR_EVER])
    while ahead.left(prospect):
        ahead.any_due([prospect], 0.1)
    assert places(prospect) == [0, 1, 2, 3]


def test_nothing_is_left_out_while_too_little_is_known(ahead: Ahead) -> None:
    prospect = begun(ahead, [0.05, 0.05, 2.5])
    while ahead.left(prospect):
        ahead.any_due([prospect], 0.1)
    assert places(prospect) == [0, 1, 2]


@pytest.mark.slow
def test_of_what_is_built_whole_nothing_is_left_out(ahead: Ahead) -> None:
    prospect = begun(ahead, [0.05] * 4 + [2.5], partial=False)
    while ahead.left(prospect):
        ahead.any_due([prospect], 0.1)
    assert places(prospect) == [0, 1, 2, 3, 4]

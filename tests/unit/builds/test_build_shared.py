"""Builds of several builders in one pool, some begun before anybody waits for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from whet.builds.builder import Builder, BuildMemory, Cut
from whet.builds.job import Built, Job
from whet.builds.shared import SharedPool
from whet.core.config import Config
from whet.core.status import Status
from whet.workers.task import Kind, Task

pytestmark = pytest.mark.medium


@pytest.fixture
def shared() -> Iterator[SharedPool]:
    with SharedPool(2) as pool:
        yield pool


def builder(shared: SharedPool) -> Builder:
    return Builder(mode="fork", limit_s=30.0, memory=BuildMemory(), shared=shared)


class Counted:
    """A build that leaves a mark in a folder each time it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def job(self, name: str, seconds: float = 0.0) -> Job:
        def build() -> Built:
            (self.folder / f"{name}-{time.monotonic_ns()}").touch()
            time.sleep(seconds)
            return Built(name)

        return Job(build, (), name)

    def task(self, name: str, seconds: float = 0.0) -> Task:
        job = self.job(name, seconds)
        return Task(job.call, job.args, 30.0, None, name, job.identity)

    def runs(self, name: str) -> int:
        return len(list(self.folder.glob(f"{name}-*")))


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


def all_of(one: Builder) -> dict[str, object]:
    found: dict[str, object] = {}
    while one.pending:
        found |= {str(result.config["t"]): result.artifact for result in one.ready(10.0)}
    return found


def test_what_was_begun_ahead_is_built_once_and_handed_to_whoever_asks(
    shared: SharedPool, counted: Counted
) -> None:
    shared.begin(counted.task("a"))
    assert shared.wait_for(lambda: shared.outcome("a") is not None, 10.0)
    with builder(shared) as one:
        one.submit(Config(t="x"), counted.job("a"))
        [result] = one.ready(10.0)
    assert result.artifact == "a"
    assert result.seconds > 0  # whoever asks first is charged for it
    assert counted.runs("a") == 1


def test_what_is_under_way_is_waited_for_not_begun_again(
    shared: SharedPool, counted: Counted
) -> None:
    shared.begin(counted.task("a", 0.3))
    with builder(shared) as one:
        one.submit(Config(t="x"), counted.job("a"))
        assert all_of(one) == {"x": "a"}
    assert counted.runs("a") == 1


def test_two_builders_that_want_the_same_both_get_it(shared: SharedPool, counted: Counted) -> None:
    with builder(shared) as one, builder(shared) as two:
        one.submit(Config(t="x"), counted.job("a", 0.2))
        two.submit(Config(t="y"), counted.job("a", 0.2))
        assert all_of(one) == {"x": "a"}
        assert all_of(two) == {"y": "a"}
    assert counted.runs("a") == 1


def test_what_somebody_asks_for_comes_before_what_was_begun_ahead(
    shared: SharedPool, counted: Counted
) -> None:
    for n in range(8):
        shared.begin(counted.task(f"ahead{n}", 0.2))
    with builder(shared) as one:
        one.submit(Config(t="x"), counted.job("a"))
        one.submit(Config(t="y"), counted.job("ahead7"))
        assert all_of(one) == {"x": "a", "y": "ahead7"}
        assert shared.outstanding([f"ahead{n}" for n in range(7)]) > 0


def test_a_builder_that_closes_leaves_what_another_waits_for(
    shared: SharedPool, counted: Counted
) -> None:
    with builder(shared) as one:
        with builder(shared) as two:
            one.submit(Config(t="x"), counted.job("a", 0.3))
            two.submit(Config(t="y"), counted.job("a", 0.3))
            two.submit(Config(t="z"), counted.job("b", 30.0))
        assert all_of(one) == {"x": "a"}
        assert shared.outstanding(["b"]) == 0


def test_cancelling_ends_what_nobody_else_wants(shared: SharedPool, counted: Counted) -> None:
    with builder(shared) as one:
        one.submit(Config(t="x"), counted.job("a", 30.0))
        one.cancel_all()
        assert one.pending == 0
        assert shared.wait_for(lambda: shared.idle and not shared.outstanding(["a"]), 10.0)


def test_a_cut_ends_a_build_that_was_begun_ahead(shared: SharedPool, counted: Counted) -> None:
    shared.begin(counted.task("a", 30.0))
    with builder(shared) as one:
        one.submit(Config(t="x"), counted.job("a", 30.0))
        one.cut(Cut(0.2, "the others were quicker"))
        [result] = one.ready(10.0)
    assert result.status is Status.BUILD_TIMEOUT
    assert "the others were quicker" in result.error


def test_a_failure_ahead_is_told_to_whoever_asks(shared: SharedPool) -> None:
    def fail() -> Built:
        raise ValueError("no such tile")

    shared.begin(Task(fail, (), 30.0, None, "f", "f"))
    assert shared.wait_for(lambda: shared.outcome("f") is not None, 10.0)
    outcome = shared.outcome("f")
    assert outcome is not None
    assert outcome.kind is Kind.RAISED
    with builder(shared) as one:
        one.submit(Config(t="x"), Job(fail, (), "f"))
        [result] = one.ready(10.0)
    assert result.status is Status.BUILD_ERROR
    assert "no such tile" in result.error


def test_priorities_of_what_waits_can_be_changed(shared: SharedPool, counted: Counted) -> None:
    for name in ("a", "b"):
        shared.begin(counted.task(name, 0.3))  # both workers are busy with these
    for n, name in enumerate(("c", "d", "e")):
        shared.begin(counted.task(name), priority=n)
    shared.reorder({"e": -1})
    assert shared.wait_for(lambda: shared.outstanding(["c", "d", "e"]) == 0, 10.0)
    began = {name: min(p.name for p in counted.folder.glob(f"{name}-*")) for name in "cde"}
    assert began["e"].partition("-")[2] < began["d"].partition("-")[2]

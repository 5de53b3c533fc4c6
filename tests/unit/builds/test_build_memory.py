"""The same thing is never built twice in one process."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import build_tasks as builds
import pytest

from whet.builds.builder import Builder, BuildMemory, Cut
from whet.builds.job import BuildResult, Job
from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.status import Limit, Status

ONE, TWO = Config(n=1), Config(n=2)
REFUSED = BuildResult(ONE, Status.RESOURCES, error="too much shared memory", seconds=0.1)
LATE = BuildResult(
    ONE, Status.BUILD_TIMEOUT, error="stopped after 2 s", limit=Limit("build_s", 10.0)
)


@pytest.fixture
def memory() -> BuildMemory:
    return BuildMemory()


def all_of(builder: Builder) -> list[BuildResult]:
    results: list[BuildResult] = []
    while builder.pending:
        results += builder.ready(None)
    return sorted(results, key=lambda result: str(result.config))


def test_a_remembered_result_costs_nothing_and_says_the_same(memory: BuildMemory) -> None:
    memory.keep("a", replace(REFUSED, stages=FrozenMap({"ttir": 0.1})))
    known = memory.recall("a", {})
    assert known is not None
    assert (known.status, known.error) == (Status.RESOURCES, "too much shared memory")
    assert (known.seconds, len(known.stages), known.remembered) == (0.0, 0, True)
    assert memory.recall("b", {}) is None


def test_what_ran_into_a_limit_is_forgotten_once_the_limit_has_risen(memory: BuildMemory) -> None:
    memory.keep("a", LATE, allowed_s=2.0)
    assert memory.recall("a", {"build_s": 10.0}) is not None
    assert memory.recall("a", {"build_s": 12.0}) is not None
    assert memory.recall("a", {"build_s": 13.0}) is None


def test_a_cut_does_not_answer_for_what_must_not_be_cut(memory: BuildMemory) -> None:
    memory.keep("a", LATE, allowed_s=2.0)
    assert memory.recall("a", {"build_s": 10.0}, exempt=True) is None
    memory.keep("a", LATE, allowed_s=10.0)
    assert memory.recall("a", {"build_s": 10.0}, exempt=True) is not None


def test_the_least_recently_used_goes_first() -> None:
    memory = BuildMemory(capacity=2)
    memory.keep("a", REFUSED)
    memory.keep("b", REFUSED)
    memory.recall("a", {})
    memory.keep("c", REFUSED)
    assert [memory.recall(id, {}) is not None for id in "abc"] == [True, False, True]


@pytest.mark.medium
def test_a_failure_is_not_built_again_by_another_builder(memory: BuildMemory) -> None:
    started: list[Config] = []
    for config in (ONE, TWO):
        with Builder(1, "fork", memory=memory, on_start=started.append) as builder:
            builder.submit(config, Job(builds.not_a_build, identity="a"))
            (result,) = all_of(builder)
        assert (result.config, result.status) == (config, Status.BUILD_ERROR)
        assert "returned bytes" in result.error
    assert started == [ONE]


@pytest.mark.medium
def test_a_refusal_is_tried_again_under_a_limit_that_has_risen(memory: BuildMemory) -> None:
    started: list[Config] = []
    job = Job(builds.refuse, identity="a")  # for want of more than 65536 bytes
    for config, allowed in ((ONE, 70_000), (TWO, 1 << 30)):
        with Builder(1, "fork", memory_bytes=1 << 30, memory=memory) as builder:
            builder.submit(ONE, job)
            (result,) = all_of(builder)
        assert result.limit == Limit("memory_bytes", 65536)
        with Builder(1, "fork", memory_bytes=allowed, memory=memory) as builder:
            builder.submit(config, job)
            started += [result.config for result in all_of(builder) if not result.remembered]
    assert started == [TWO]


@pytest.mark.medium
def test_a_success_is_not_built_again_either(memory: BuildMemory) -> None:
    started: list[Config] = []
    with Builder(1, "fork", memory=memory, on_start=started.append) as builder:
        builder.submit(ONE, Job(builds.at_once, ("made",), identity="a"))
        (first,) = all_of(builder)
        builder.submit(TWO, Job(builds.at_once, ("made",), identity="a"))
        (second,) = all_of(builder)
    assert (first.artifact, second.artifact) == ("made", "made")
    assert (first.remembered, second.remembered) == (False, True)
    assert started == [ONE]


@pytest.mark.medium
def test_equal_jobs_under_way_at_once_are_built_once(memory: BuildMemory, tmp_path: Path) -> None:
    gate, place = tmp_path / "gate", tmp_path / "built"
    started: list[Config] = []
    with Builder(2, "fork", memory=memory, on_start=started.append) as builder:
        for config in (ONE, TWO):
            builder.submit(config, Job(builds.touch_and_wait, (place, gate), identity="a"))
        gate.touch()
        one, two = all_of(builder)
    assert (one.artifact, two.artifact) == ("built", "built")
    assert (one.remembered, two.remembered) == (False, True)
    assert two.seconds == 0.0
    assert started == [ONE]


@pytest.mark.medium
def test_jobs_without_an_identity_are_always_built(memory: BuildMemory) -> None:
    started: list[Config] = []
    with Builder(1, "fork", memory=memory, on_start=started.append) as builder:
        for config in (ONE, TWO):
            builder.submit(config, Job(builds.at_once, ("made",)))
        all_of(builder)
    assert started == [ONE, TWO]
    assert len(memory) == 0


@pytest.mark.medium
def test_what_died_for_want_of_memory_may_go_well_another_time(memory: BuildMemory) -> None:
    with Builder(1, "fork", memory=memory) as builder:
        builder.submit(ONE, Job(builds.kill_itself, identity="a"))
        (result,) = all_of(builder)
    assert result.status is Status.BUILD_ERROR
    assert len(memory) == 0


@pytest.mark.medium
def test_a_cut_reaches_builds_under_way_and_not_those_with_a_limit_of_their_own(
    memory: BuildMemory, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with Builder(2, "fork", limit_s=60.0, memory=memory) as builder:
        builder.submit(ONE, Job(builds.touch_and_wait, (tmp_path / "1", gate)), limit_s=60.0)
        builder.submit(TWO, Job(builds.hang, ("",), identity="a"))
        builder.cut(Cut(0.1, "because"))
        (cut,) = builder.ready(None)
        gate.touch()
        (spared,) = builder.ready(None)
    assert (cut.config, cut.status) == (TWO, Status.BUILD_TIMEOUT)
    assert cut.error.endswith("0.1 s: because")
    assert cut.limit == Limit("build_s", 60.0)
    assert (spared.config, spared.status) == (ONE, Status.OK)
    with Builder(1, "fork", limit_s=60.0, memory=memory) as later:
        later.submit(TWO, Job(builds.hang, ("",), identity="a"))
        (again,) = later.ready(0.0)
    assert again.error == cut.error


@pytest.mark.medium
def test_what_waits_can_be_put_in_another_order(tmp_path: Path) -> None:
    started: list[Config] = []
    gate, place = tmp_path / "gate", tmp_path / "0"
    with Builder(1, "fork", on_start=started.append) as builder:
        builder.submit(Config(n=0), Job(builds.touch_and_wait, (place, gate)))
        for n in (1, 2, 3):
            builder.submit(Config(n=n), Job(builds.at_once, (str(n),)), priority=n)
        while builder.building() != [Config(n=0)]:
            time.sleep(0.005)
        waiting = builder.waiting()
        builder.reorder({Config(n=n).id: -n for n in (1, 2, 3)})
        gate.touch()
        all_of(builder)
    assert waiting == [Config(n=n) for n in (1, 2, 3)]
    assert [config["n"] for config in started] == [0, 3, 2, 1]

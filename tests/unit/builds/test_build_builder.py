"""The builder: configs in, one result each out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import build_tasks as builds
import pytest

from whet.builds.builder import Builder
from whet.builds.job import BuildResult, Built, Job
from whet.core.config import Config
from whet.core.status import Limit, Status

MEMORY = 256 << 20


@pytest.fixture(scope="module")
def shared() -> Iterator[Builder]:
    with Builder(2, "spawn", limit_s=60.0, memory_bytes=MEMORY) as builder:
        yield builder


def build(builder: Builder, job: Job, limit_s: float | None = None) -> BuildResult:
    builder.submit(Config(BM=64), job, limit_s=limit_s)
    (result,) = builder.ready(None)
    assert result.config == Config(BM=64)
    return result


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def eventually_holds(path: Path, expected: list[str]) -> None:
    while names(path) != expected:
        time.sleep(0.005)


@pytest.mark.medium
def test_a_real_build_gives_its_artifact_facts_and_stages(shared: Builder) -> None:
    result = build(shared, Job(builds.compile_c, ("int one(void) { return 1; }",)))
    assert (result.status, result.error, result.limit) == (Status.OK, "", None)
    assert result.artifact.startswith(b"\x7fELF")
    assert result.facts == {"bytes": len(result.artifact)}
    assert set(result.stages) == {"compile", "link"}
    assert sum(result.stages.values()) <= result.seconds <= result.ended - result.started


@pytest.mark.medium
def test_what_the_compiler_printed_is_the_error(shared: Builder) -> None:
    result = build(shared, Job(builds.compile_c, ("int one(void) { return oen; }",)))
    assert (result.status, result.artifact) == (Status.BUILD_ERROR, None)
    assert "'oen' undeclared" in result.error.replace("‘", "'").replace("’", "'")
    assert "Traceback" not in result.error
    assert "whet" not in result.error


@pytest.mark.medium
def test_a_build_past_its_limit_is_a_timeout_with_that_limit(shared: Builder) -> None:
    result = build(shared, Job(builds.hang, ("unrolling…\n",)), limit_s=1.5)
    assert (result.status, result.limit) == (Status.BUILD_TIMEOUT, Limit("build_s", 1.5))
    assert result.error.startswith("the build was still running after 1.5 s and was killed")


@pytest.mark.medium
def test_a_crash_names_the_signal_and_quotes_the_last_words(shared: Builder) -> None:
    result = build(shared, Job(builds.crash))
    assert (result.status, result.limit) == (Status.BUILD_ERROR, None)
    assert result.error.endswith("SIGSEGV\ninternal compiler error")


@pytest.mark.medium
def test_a_build_that_was_killed_is_tried_once_more(shared: Builder, tmp_path: Path) -> None:
    result = build(shared, Job(builds.kill_itself_once, (tmp_path / "mark",)))
    assert (result.status, result.artifact) == (Status.OK, "at the second try")


@pytest.mark.medium
def test_a_build_that_is_killed_twice_is_to_blame(shared: Builder) -> None:
    result = build(shared, Job(builds.kill_itself))
    assert result.status is Status.BUILD_ERROR
    assert "SIGKILL" in result.error


def test_too_much_memory_is_a_matter_of_resources(shared: Builder) -> None:
    result = build(shared, Job(builds.exhaust_memory))
    assert (result.status, result.limit) == (Status.RESOURCES, Limit("memory_bytes", MEMORY))
    assert "256 MiB" in result.error


def test_a_target_may_say_which_status_the_config_deserves(shared: Builder) -> None:
    result = build(shared, Job(builds.refuse))
    assert (result.status, result.limit) == (Status.RESOURCES, Limit("memory_bytes", 65536))
    assert result.error == "98304 bytes of shared memory, 65536 allowed"


def test_a_job_that_returns_something_else_is_a_build_error(shared: Builder) -> None:
    result = build(shared, Job(builds.not_a_build))
    assert result.status is Status.BUILD_ERROR
    assert "returned bytes" in result.error


def test_a_closure_needs_fork_and_the_error_says_so(shared: Builder) -> None:
    job = Job(lambda: Built("made here"))
    result = build(shared, job)
    assert result.status is Status.BUILD_ERROR
    assert "mode 'fork'" in result.error
    with Builder(1, "fork") as forking:
        assert build(forking, job).artifact == "made here"


@pytest.mark.medium
def test_nothing_submitted_nothing_ready(shared: Builder) -> None:
    assert shared.pending == 0
    assert shared.ready(None) == []


@pytest.mark.medium
def test_starts_are_observable_and_follow_priority(tmp_path: Path) -> None:
    started: list[Config] = []
    gate = tmp_path / "gate"
    with Builder(1, "spawn", on_start=started.append) as builder:
        builder.submit(Config(n=0), Job(builds.touch_and_wait, (tmp_path / "0", gate)))
        eventually_holds(tmp_path, ["0"])
        assert builder.building() == [Config(n=0)]
        for n, priority in ((1, 9), (2, 3), (3, 3), (4, -1)):
            builder.submit(Config(n=n), Job(builds.at_once, (str(n),)), priority)
        assert builder.pending == 5
        gate.touch()
        results: list[BuildResult] = []
        while builder.pending:
            results += builder.ready(None)
        assert builder.building() == []
    assert [config["n"] for config in started] == [0, 4, 2, 3, 1]
    assert [result.config for result in results] == started


@pytest.mark.medium
def test_cancelled_builds_are_not_reported_and_finished_ones_still_are(tmp_path: Path) -> None:
    with Builder(1, "fork") as builder:
        builder.submit(Config(n=0), Job(builds.at_once, ("first",)))
        builder.submit(Config(n=1), Job(builds.touch_and_wait, (tmp_path / "1", tmp_path / "x")))
        builder.submit(Config(n=2), Job(builds.at_once, ("never",)))
        eventually_holds(tmp_path, ["1"])
        builder.cancel_all()
        assert builder.building() == []
        assert [result.artifact for result in builder.ready(None)] == ["first"]
        assert builder.pending == 0
        assert build(builder, Job(builds.at_once, ("after",))).artifact == "after"


@pytest.mark.medium
def test_waiting_for_a_build_ends_with_the_time_given(tmp_path: Path) -> None:
    with Builder(1, "fork") as builder:
        builder.submit(Config(n=1), Job(builds.touch_and_wait, (tmp_path / "1", tmp_path / "x")))
        assert builder.ready(0.05) == []
        assert builder.pending == 1

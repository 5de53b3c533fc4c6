"""What lives in actors on a cluster's machines, without a cluster."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from whet.core.errors import ConfigFailure
from whet.engine.executors import ray_cluster
from whet.engine.executors.protocol import SeatLostError
from whet.engine.executors.ray_cluster import BuildHost, DeviceHost, Node
from whet.testing.executor_kit import Probe
from whet.testing.fake_devices import slow_build
from whet.workers.answers import WorkerDied
from whet.workers.task import Kind, Task

pytestmark = pytest.mark.medium


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceHost]:
    monkeypatch.setenv("WHET_DEVICE", "")
    host = DeviceHost("node1:0")
    host.open(1, pickle.dumps(Probe), ())
    yield host
    host.close(1)


@pytest.fixture
def builds() -> Iterator[BuildHost]:
    host = BuildHost(1)
    yield host
    host.close()


def ask(host: DeviceHost, method: str, *args: object) -> ray_cluster.SessionAnswer:
    return host.call(1, pickle.dumps((method, args)), None, None, None)


@pytest.mark.slow
def test_what_is_raised_there_comes_back_as_a_value(device: DeviceHost) -> None:
    answer = ask(device, "device")
    assert answer.reply is not None
    assert answer.reply.value == "node1:0"
    assert isinstance(ask(device, "fail").problem, ConfigFailure)
    died = ask(device, "die")
    assert isinstance(died.problem, WorkerDied)
    assert (died.generation, died.made) == (1, 1)
    assert ask(device, "count").generation == 2


def test_a_death_after_the_machine_has_ended_is_no_news_of_a_config(
    device: DeviceHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(device, "count")
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert isinstance(ask(device, "die").problem, SeatLostError)


def test_a_build_ends_with_its_outcome_or_is_cancelled(builds: BuildHost) -> None:
    done = builds.build(7, pickle.dumps(Task(slow_build, ("a", 0.0))))
    assert (done.ticket, done.kind) == (7, Kind.DONE)
    assert done.value.artifact == "a"
    found = []
    packed = pickle.dumps(Task(slow_build, ("b", 60.0)))
    thread = threading.Thread(target=lambda: found.append(builds.build(8, packed)))
    thread.start()
    while not builds._pool.running():
        time.sleep(0.01)
    builds.cancel(8)
    thread.join(30)
    assert [one.kind for one in found] == [Kind.CANCELLED]


def test_a_limit_that_changes_meanwhile_counts(builds: BuildHost) -> None:
    found = []
    packed = pickle.dumps(Task(slow_build, ("b", 60.0)))
    thread = threading.Thread(target=lambda: found.append(builds.build(8, packed)))
    thread.start()
    while not builds._pool.running():
        time.sleep(0.01)
    builds.limit(8, 0.1)
    thread.join(30)
    assert [one.kind for one in found] == [Kind.TIMED_OUT]


def test_a_build_that_dies_with_its_machine_is_not_blamed(
    builds: BuildHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 1)
    packed = pickle.dumps(Task(os.kill, (0, signal.SIGKILL)))
    with pytest.raises(SeatLostError):
        builds.build(9, packed)


@pytest.mark.parametrize(
    ("build_on", "cpu_node", "gpu_node"),
    [
        ("all", True, True),
        ("cpu", True, False),
        ("gpu", False, True),
        ("node1", True, False),
        ("10.0.0.2, node7", False, True),
    ],
)
def test_build_on_names_machines(build_on: str, cpu_node: bool, gpu_node: bool) -> None:
    assert Node("ab", "node1", "10.0.0.1", 8, 0).builds(build_on) is cpu_node
    assert Node("cd", "node2", "10.0.0.2", 8, 4).builds(build_on) is gpu_node

"""The Ray executor on a cluster of four node processes: the contract; nodes come and go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.event import Event, TrialFinished
from whet.core.frozen import FrozenMap
from whet.engine import tune
from whet.engine.executors import on_ray
from whet.engine.executors.on_ray import RayExecutor
from whet.engine.executors.protocol import DeviceExecutor, facts_here
from whet.store import MemoryStore
from whet.testing.executor_kit import ExecutorContract
from whet.testing.fake_devices import FakeRack, RackTarget
from whet.testing.ray_nodes import LocalCluster, RayMissingError

pytestmark = [pytest.mark.slow(60), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    try:
        opened = LocalCluster(3)
    except RayMissingError as missing:
        if os.environ.get("WHET_CI_RAY"):
            raise
        warnings.warn(f"tests of the Ray executor are skipped: {missing}", stacklevel=1)
        pytest.skip(str(missing))
    with opened:
        yield opened


class _Kept(RayExecutor):
    """Stays open from test to test."""

    def close(self) -> None:
        pass

    def really_close(self) -> None:
        super().close()


@pytest.fixture(scope="module")
def kept(cluster: LocalCluster) -> Iterator[_Kept]:
    executor = _Kept(cluster.address)
    yield executor
    executor.really_close()


class TestRay(ExecutorContract):
    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: LocalCluster, kept: _Kept) -> None:
        self.cluster, self.kept = cluster, kept

    def make(self, devices: int) -> DeviceExecutor:
        return self.kept

    def make_own(self, devices: int) -> DeviceExecutor:
        self.kept.really_close()  # its actors have the GPUs
        return RayExecutor(self.cluster.address)


TARGET_SPACE = {"a": list(range(8)), "b": list(range(8))}


def _time(config: Config) -> float:
    return 50_000.0 * (1 + 0.03 * ((config["a"] * 7 + config["b"] * 3) % 59))  # one is the fastest


def target() -> RackTarget:
    return RackTarget(TARGET_SPACE, _time, FakeRack(look_s=0.01), build_s=0.01)


class _After:
    """Calls what it is given once so many trials are in, from another thread."""

    def __init__(self, trials: int, what: Callable[[], None]) -> None:
        self._left = trials
        self._what = what

    def __call__(self, event: Event) -> None:
        if isinstance(event, TrialFinished):
            self._left -= 1
            if self._left == 0:
                threading.Thread(target=self._what, daemon=True).start()


def test_a_machine_with_another_toolchain_is_refused_with_the_difference(
    cluster: LocalCluster, kept: _Kept
) -> None:
    kept.really_close()
    here = facts_here()
    older = replace(here, toolchain=FrozenMap({**here.toolchain, "whet": "0.0.1"}))
    with pytest.raises(UsageError) as caught:
        RayExecutor(cluster.address, expected=older)
    assert f"whet {here.toolchain['whet']}, not 0.0.1" in str(caught.value)


@pytest.mark.whole
def test_nodes_that_die_and_join_cost_only_what_they_were_doing(
    cluster: LocalCluster, kept: _Kept
) -> None:
    kept.really_close()
    store = MemoryStore()
    tuned = target()
    with RayExecutor(cluster.address) as executor:
        before = {seat.name for seat in executor.seats()}
        assert len(before) == 4
        last = cluster.nodes[-1]
        killing = _After(8, lambda: cluster.kill(last))
        result = tune(tuned, store=store, executor=executor, on_event=killing)
        assert result.config == tuned.best
        trials = store.trials(tuned.workload().id)
        assert len(trials) == 64
        assert not [trial for trial in trials if trial.status.failed]
        cluster.join()
        end = time.monotonic() + 60
        while time.monotonic() < end:  # Ray takes a moment to notice either
            names = {seat.name for seat in executor.seats()}
            if len(names) == 4 and names != before:
                break
            time.sleep(0.1)
        assert len(names - before) == len(before - names) == 1


def test_machines_that_hang_cost_only_what_they_were_doing(
    cluster: LocalCluster, kept: _Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    kept.really_close()
    monkeypatch.setattr(on_ray, "SILENT_LOOKS", 12)
    store, tuned = MemoryStore(), target()
    with RayExecutor(cluster.address) as executor:
        hung = executor.seats()[0]
        builder = executor._builds[hung.node]
        pids = ray.get([hung.actor.pid.remote(), builder.actor.pid.remote()])

        def hang() -> None:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)

        try:
            result = tune(tuned, store=store, executor=executor, on_event=_After(8, hang))
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        assert hung.name not in {seat.name for seat in executor.seats()}
    assert result.config == tuned.best
    trials = store.trials(tuned.workload().id)
    assert len(trials) == 64
    assert not [trial for trial in trials if trial.status.failed]
    said = [note for note in result.notes if hung.name in note]
    assert "no sign" in said[0]


RACK = """
from whet.testing.fake_devices import FakeRack, RackTarget

fake = RackTarget(
    {"n": list(range(400))}, lambda config: 50_000.0 + config["n"], FakeRack(look_s=0.05)
)
"""


@pytest.mark.slow
def test_ctrl_c_ends_it_everywhere_and_prints_the_best_so_far(
    cluster: LocalCluster, kept: _Kept, tmp_path: Path
) -> None:
    kept.really_close()
    (tmp_path / "rack.py").write_text(RACK)
    command = ["tune", "rack.py:fake", "--ray", cluster.address, "--store", "s.db"]
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "best" in line:
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "best     n=" in out
    with RayExecutor(cluster.address) as executor:  # every GPU is free again
        assert len(executor.seats()) == len(cluster.nodes) + 1


FROM_ENVIRONMENT = """
import os
import whet

GOOD = int(os.environ.get("GOOD", "1"))


def work(a):
    for _ in range(20_000 * (1 + abs(a - GOOD))):
        pass


k = whet.function(work, {"a": [1, 4, 7]})
"""


@pytest.mark.slow
def test_code_that_is_another_one_on_the_cluster_is_refused_or_sent_its_environment(
    cluster: LocalCluster, kept: _Kept, tmp_path: Path
) -> None:
    kept.really_close()
    (tmp_path / "kenv.py").write_text(FROM_ENVIRONMENT)

    def tuned(*options: str) -> subprocess.CompletedProcess[str]:
        command = ["tune", "kenv.py:k", "--ray", cluster.address, "--store", "s.db", *options]
        return subprocess.run(
            [sys.executable, "-m", "whet", *command],
            cwd=tmp_path,
            env={**os.environ, "GOOD": "7"},
            capture_output=True,
            text=True,
        )

    refused = tuned()
    assert refused.returncode == 1
    assert "GOOD is 1, not 7; " in refused.stderr
    assert "--env NAME" in refused.stderr
    found = tuned("--env", "GOOD")
    assert found.returncode == 0, found.stderr
    assert "best     a=7" in found.stdout

"""Triton kernels over a Ray cluster of several node processes: built on machines without a GPU,
measured on the one that has one."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import isolated_parts as parts
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import torch
import triton
import triton.language as tl

import whet
from whet.core.status import Status
from whet.engine import log
from whet.engine.executors.current import using
from whet.engine.executors.on_ray import RayExecutor
from whet.testing.fake_triton import fake_driver
from whet.testing.ray_nodes import LocalCluster, RayMissingError

pytestmark = [pytest.mark.medium, pytest.mark.timeout(300)]

N = 8
BLOCKS = (512, 1024, 2048, 4096, 8192)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The head has the GPU; two more machines have cores only. What they inherit stands for
    another machine: a Triton cache that nobody here looks into."""
    far = tmp_path_factory.mktemp("far")
    patch = pytest.MonkeyPatch()
    patch.setenv("TRITON_CACHE_DIR", str(far / "triton"))
    patch.setenv("ISOLATED_DIARY", str(far / "diary"))
    patch.setenv("ISOLATED_HERE", str(os.getpid()))
    patch.setenv("PYTHONPATH", str(Path(parts.__file__).parent), prepend=os.pathsep)
    try:
        opened = LocalCluster(0)
    except RayMissingError as missing:
        if os.environ.get("WHET_CI_RAY"):
            raise
        warnings.warn(f"Triton builds over Ray are not tested: {missing}", stacklevel=1)
        pytest.skip(str(missing))
    with opened:
        for _ in range(2):
            opened.join(gpus=0)
        patch.undo()
        opened.far = far
        yield opened


@pytest.fixture(autouse=True)
def here(monkeypatch, cluster):
    monkeypatch.setenv("ISOLATED_DIARY", str(cluster.far / "diary"))
    monkeypatch.setenv("ISOLATED_HERE", str(os.getpid()))
    monkeypatch.setenv("WHET_BUILD_LIMIT", "5m")
    monkeypatch.setattr(log, "_said", set())
    with fake_driver() as fake:
        fake.on_launch = lambda name, args: parts.launched(fake, name, args)
        yield


def tuned_copy(configs=None):
    """In a closure, so that no other process can import it."""

    @triton.jit
    def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

    configs = configs or [triton.Config({"BLOCK": block}) for block in BLOCKS]
    kernel = whet.autotune(configs=configs, key=["n"])(copy)
    kernel.whet_timer = parts.by_block
    return kernel


def tuned(executor, kernel):
    x, y = torch.arange(float(N)), torch.zeros(N)
    with using(executor):
        kernel[(1,)](x, y, N)
    return kernel


class Listening(RayExecutor):
    """Notes on which machines there were builds. `on_build` is called, once and in another thread,
    when a machine is given the first."""

    def __init__(self, *args, **keywords):
        self.said, self.built_on, self.on_build = [], set(), {}
        super().__init__(*args, say=self.said.append, **keywords)
        for node in self._builds.values():
            node.start = self._noting(node, node.start)

    @property
    def builders_by_id(self):
        return dict(self._builds)

    def _noting(self, node, start):
        def noting(ticket, task):
            self.built_on.add(node.name)
            begun = start(ticket, task)
            if node.name in self.on_build:
                threading.Thread(target=self.on_build.pop(node.name)).start()
            return begun

        return noting


@pytest.mark.slow(60)
def test_machines_without_a_gpu_build_for_the_one_that_has_one(cluster, cold):
    with Listening(cluster.address, build_on="cpu", build_tools=("whet", "triton")) as executor:
        kernel = tuned(executor, tuned_copy())
    assert cold.measured() == set(BLOCKS)
    assert kernel.best_config.kwargs == {"BLOCK": max(BLOCKS)}
    assert len(executor.built_on) == 2
    assert not executor.said
    assert len(cold.files("cubin")) == len(BLOCKS)
    assert not (cluster.far / "triton").exists()  # nothing is left on the machines that built


@pytest.mark.slow
@pytest.mark.timing  # a build has a limit by the clock, and four machines here share two cores
def test_a_machine_that_dies_while_it_builds_costs_no_config(cluster, cold):
    configs = [triton.Config({"BLOCK": b}, num_warps=w) for b in BLOCKS for w in (1, 2, 4, 8)]
    victim = cluster.join(gpus=0)
    with Listening(cluster.address, build_on="cpu") as executor:
        assert victim.node_id in executor.builders_by_id
        executor.on_build[victim.node_id] = lambda: cluster.kill(victim)
        tuned(executor, tuned_copy(configs))
    assert not executor.on_build
    trials = cold.trials()
    assert len(trials) == len(configs)
    assert {trial.status for trial in trials} <= {Status.OK, Status.OUTRACED}


FILE = """
import isolated_parts as parts
import torch
import triton
import triton.language as tl
import whet

parts.start_device()

@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

def inputs(n):
    return (1,), (torch.arange(float(n)), torch.zeros(n), n)

tuned = whet.autotune(
    [triton.Config({"BLOCK": block}) for block in (512, 1024, 2048)], key=["n"], inputs=inputs
)(copy)
tuned.whet_timer = parts.by_block
"""


@pytest.mark.slow
def test_a_file_is_tuned_over_the_cluster(cluster, tmp_path):
    """A machine that only builds needs no file of the user's: theirs are elsewhere."""
    (tmp_path / "kernels.py").write_text(FILE)
    options = ["--key", "n=8", "--key", "n=16", "--ray", cluster.address, "--build-on", "cpu"]
    folder = str(Path(parts.__file__).parent)
    ran = subprocess.run(
        [sys.executable, "-m", "whet", "tune", "kernels.py:tuned", *options, "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": folder},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)["keys"]
    assert [one["best"]["config"]["BLOCK"] for one in found] == [2048, 2048]
    assert "compiled on this machine" not in ran.stderr
    assert "building on this machine" not in ran.stderr

"""A new process that finds its kernels tuned imports nothing that only tuning needs, and what it
does need when the kernels are decorated, not in the first call."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import json
import sys

import triton
import triton.language as tl

import whet
from whet.testing.fake_triton import FakeTensor, fake_driver, told

@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]
kernel = whet.autotune(configs=configs, key=["n"])(scale)
kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
with fake_driver():
    decorated = set(sys.modules)
    kernel[(1,)](FakeTensor([1.0] * 4), 4)
names = [name for name in sys.modules if name.startswith("whet.")]
called = [name for name in names if name not in decorated]
tuned = kernel.whet_result is not None and kernel.whet_result.source == "tuned"
print(json.dumps([kernel.best_config.kwargs["BLOCK"], tuned, names, called]))
"""

# What a run is made of: its steps and what these bring, workers, models, strategies, the race.
OF_TUNING = (
    "whet.builds.",
    "whet.core.event",
    "whet.engine.plan",
    "whet.engine.steps",
    "whet.learn",
    "whet.measure.bench",
    "whet.measure.racing",
    "whet.search.auto",
    "whet.store.merging",
    "whet.store.sweeping",
    "whet.targets.triton.compiler.compile",
    "whet.targets.triton.request",
    "whet.targets.triton.packed",
    "whet.workers",
)

INSTALLED = """
import json
import sys

import triton

import whet

whet.install()
print(json.dumps([name for name in sys.modules if name.startswith("whet.")]))
"""


@pytest.mark.medium
def test_installing_imports_nothing_of_tuning():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", INSTALLED]
    run = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True)
    loaded = json.loads(run.stdout)
    assert "whet.targets.triton.autotuner" in loaded
    assert [name for name in loaded if name.startswith(OF_TUNING)] == []


@pytest.mark.slow
def test_a_stored_call_imports_nothing(tmp_path, fork_server):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "WHET_STORE": str(tmp_path / "store.db"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
    }

    words = [sys.executable, str(program)]
    tuned = fork_server.run(words, cwd=tmp_path, env={**environment, "WHET_MODE": "tune"})
    assert json.loads(tuned.stdout)[:2] == [64, True], tuned.stderr
    for mode in ("tune", "cached"):
        told = {**environment, "WHET_MODE": mode}
        run = subprocess.run(words, env=told, stdout=subprocess.PIPE, check=True)
        block, tuned, loaded, by_the_call = json.loads(run.stdout)
        assert (block, tuned, by_the_call) == (64, False, [])
        assert [name for name in loaded if name.startswith(OF_TUNING)] == []

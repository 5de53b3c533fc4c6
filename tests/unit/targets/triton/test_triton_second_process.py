"""A new process that finds its kernels tuned imports nothing that only tuning needs."""

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
    kernel[(1,)](FakeTensor([1.0] * 4), 4)
loaded = [name for name in sys.modules if name.startswith("whet.")]
print(json.dumps([kernel.best_config.kwargs["BLOCK"], kernel.whet_result.source, loaded]))
"""

# What a run is made of: its steps and what these bring, workers, models, strategies, the race.
OF_TUNING = (
    "whet.builds.",
    "whet.core.event",
    "whet.engine.plan",
    "whet.engine.steps",
    "whet.learn",
    "whet.measure.bench",
    "whet.measure.gpu.room",
    "whet.measure.racing",
    "whet.search.auto",
    "whet.store.reports",
    "whet.targets.triton.compiler.compile",
    "whet.targets.triton.compiler.request",
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

# What a first call that nobody knows brings: the store, the engine, what a target is made of.
OF_CALLS = (
    "whet.core.run",
    "whet.core.space",
    "whet.core.workload",
    "whet.engine.recall",
    "whet.engine.tuning",
    "whet.measure",
    "whet.store",
    "whet.targets.fingerprint",
    "whet.targets.triton.call",
    "whet.targets.triton.compiler.source",
    "whet.targets.triton.target",
    "whet.targets.triton.tuned",
)


def test_installing_imports_nothing_that_only_an_unknown_call_needs():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", INSTALLED]
    run = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True)
    assert [name for name in json.loads(run.stdout) if name.startswith(OF_CALLS)] == []


def test_a_stored_call_imports_nothing_of_tuning(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "WHET_STORE": str(tmp_path / "store.db"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
    }

    def called():
        run = subprocess.run(
            [sys.executable, program], env=environment, stdout=subprocess.PIPE, check=True
        )
        return json.loads(run.stdout)

    assert called()[:2] == [64, "tuned"]
    block, source, loaded = called()
    assert (block, source) == (64, "stored")
    assert [name for name in loaded if name.startswith(OF_TUNING)] == []

"""A library's kernels, recorded in one process, tuned in a second that never sees the model, and
required in a third, across two machines by way of a bundle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from fork_server import ForkServer
from whet.store import open_store

pytestmark = [pytest.mark.timeout(300), pytest.mark.medium]

# A device that compiles and launches nothing, in every process that imports the library.
DEVICE = """
from whet.core.timing import Method
from whet.targets.triton import device
from whet.testing.fake_triton import fake_driver, told

HELD = fake_driver()
HELD.__enter__()
device.timer = lambda *asked: told(lambda config: 1000.0 - config.kwargs["BLOCK"])()
device.method = lambda *asked: Method("told", "none")
"""

KERNELS = """
import triton
import triton.language as tl

from lab_ops import device

@triton.heuristics({"IS_VARLEN": lambda args: args["offsets"] is not None})
@triton.autotune([triton.Config({"BLOCK": size}) for size in (16, 32, 64)], key=["n"])
@triton.jit
def packed_sum(x, offsets, y, n, limit, IS_VARLEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(offsets) if IS_VARLEN else 0
    value = tl.load(x + begin + i, mask=i < n, other=0.0)
    tl.store(y + i, tl.minimum(value, limit), mask=i < n)
"""

MODEL = """
import torch

from lab_ops.kernels import packed_sum

print("the model's code is here")

def step():
    for n in (1000, 4096):
        offsets = torch.tensor([0, n // 3, n], dtype=torch.int32)
        x, y = torch.zeros(2 * n)[n:], torch.zeros(n)
        grid = lambda meta: (-(-n // meta["BLOCK"]),)
        packed_sum[grid](x, offsets, y, n, float("inf"))
"""

TRAIN = "from lab_model import step\nstep()\n"


class Machine:
    """A home of its own: the library, its caches and a store; the model is another matter."""

    def __init__(self, home: Path, server: ForkServer, *, model: bool) -> None:
        self.home, self.server = home, server
        library = home / "site" / "lab_ops"
        library.mkdir(parents=True)
        (library / "__init__.py").write_text("")
        (library / "device.py").write_text(DEVICE)
        (library / "kernels.py").write_text(KERNELS)
        if model:
            (home / "lab_model.py").write_text(MODEL)
            (home / "train.py").write_text(TRAIN)

    @property
    def store(self) -> Path:
        return self.home / "store.db"

    def run(self, *words: str, **environ: str) -> Any:
        """From a process that has imported torch and Triton, which takes longer than the rest."""
        return self.server.run([sys.executable, *words], cwd=self.home, env=self.environ(**environ))

    def run_anew(self, *words: str, **environ: str) -> Any:
        return subprocess.run(
            [sys.executable, "-W", "ignore", *words],
            cwd=self.home,
            env=self.environ(**environ),
            capture_output=True,
            text=True,
            timeout=240,
        )

    def environ(self, **environ: str) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith("WHET_")}
        return {
            **known,
            "PYTHONPATH": str(self.home / "site"),
            "TRITON_CACHE_DIR": str(self.home / "triton"),
            "WHET_STORE": str(self.store),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            **environ,
        }

    def tunings(self) -> int:
        with open_store(self.store) as store:
            return sum(
                run.trials > 0 for one in store.workloads() for run in store.runs(one.workload.id)
            )


@pytest.mark.whole
def test_what_a_fleet_met_is_tuned_on_one_machine_and_comes_back(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "night").mkdir()
    fleet = Machine(tmp_path / "fleet", fork_server, model=True)
    night = Machine(tmp_path / "night", fork_server, model=False)
    bundle, results = str(tmp_path / "met.whet"), str(tmp_path / "tuned.whet")

    recorded = fleet.run("-m", "whet", "run", "--record", "train.py")
    assert recorded.returncode == 0, recorded.stderr
    assert "the model's code is here" in recorded.stdout
    assert fleet.tunings() == 0
    refused = fleet.run("-m", "whet", "run", "train.py", WHET_MODE="require")
    assert refused.returncode != 0
    assert "packed_sum" in refused.stderr
    packed = fleet.run("-m", "whet", "pack", bundle, "--missed")
    assert packed.returncode == 0, packed.stderr

    assert night.run("-m", "whet", "store", "merge", bundle).returncode == 0
    # The model is where it was recorded, and is left alone there.
    tuned = night.run("-m", "whet", "tune", "--missed", "--json", "-q")
    assert tuned.returncode == 0, tuned.stdout + tuned.stderr
    assert "the model's code" not in tuned.stdout + tuned.stderr
    told = json.loads(tuned.stdout)
    assert (len(told["tuned"]), told["left"]) == (2, [])
    assert night.run("-m", "whet", "pack", results).returncode == 0

    assert fleet.run("-m", "whet", "store", "merge", results).returncode == 0
    before = fleet.tunings()
    required = fleet.run_anew("-m", "whet", "run", "train.py", WHET_MODE="require")
    assert required.returncode == 0, required.stderr
    assert fleet.tunings() == before
    verified = night.run("-m", "whet", "verify", "--missed", "--json", "-q")
    assert [one["verdict"] for one in json.loads(verified.stdout)["picks"]] == ["ok", "ok"]

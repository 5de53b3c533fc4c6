"""torch's compiler on the CPU with whet behind it: C++ templates against MKL, for real."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from whet.store import open_store

pytest.importorskip("torch")

PROGRAM = """
import json, sys
import torch, whet
from torch._dynamo.utils import counters
from torch._inductor import config

config.freezing = True
torch.manual_seed(0)
layers = [torch.nn.Linear(96, 96) for _ in range(int(sys.argv[1]))]
model, x = torch.nn.Sequential(*layers).eval(), torch.randn(32, 96)
with torch.no_grad(), whet.install(inductor=True):
    got = torch.compile(model, mode="max-autotune")(x)
    right = bool(torch.allclose(got, model(x), atol=1e-5))
    row = next(one for one in whet.installed() if one.kernel.startswith("inductor"))
print(json.dumps([right, row.kernel, row.keys, counters["inductor"]["select_algorithm_autotune"]]))
"""


def compiled(folder, depth):
    """In a process of its own, with Inductor's caches empty but for C++ headers."""
    cache = folder / "cache"
    for kept in cache.glob("*"):
        if kept.is_file():
            kept.unlink()
        elif kept.name != "precompiled_headers":
            shutil.rmtree(kept)
    environment = {
        **os.environ,
        "WHET_STORE": str(folder / "store.db"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        # What the compiler can do is taken as told: trying it takes as long as half of the rest.
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(depth)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow(40)
@pytest.mark.whole
@pytest.mark.timeout(900)
def test_what_is_tuned_once_is_known_to_every_model(tmp_path):
    right, name, keys, measured = compiled(tmp_path, 1)
    assert (right, name, keys, measured) == (True, "inductor.packed_linear", 1, 1)
    right, _, keys, measured = compiled(tmp_path, 2)
    assert (right, keys, measured) == (True, 1, 0)
    with open_store(str(tmp_path / "store.db"), read_only=True) as store:
        [workload] = [one.workload for one in store.workloads()]
        assert [workload.key[name] for name in "MNK"] == [32, 96, 96]
        kernels = {trial.config["kernel"] for trial in store.trials(workload.id)}
    assert "_mkl_linear" in kernels
    assert len(kernels) == 2

"""The shipped Triton examples, and a kernel of stock Triton, by the commands their texts give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[2] / "examples"

STOCK = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 1024)], key=["n"])
@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)

def call(n):
    x = torch.ones(n, device="cuda")
    return (lambda meta: (triton.cdiv(n, meta["BLOCK"]),)), (x, torch.empty_like(x), n)

if __name__ == "__main__":
    grid, args = call(1 << 20)
    double[grid](*args)
    print(type(double).__module__, double.best_config.kwargs, args[1].sum().item())
"""


def whet(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "whet", *arguments],
        env={**os.environ, "WHET_STORE": str(folder / "store.db")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("file", "kernel", "key", "configs"),
    [
        ("triton_matmul.py", "matmul", "M=1024,N=1024,K=512", 9),
        ("triton_softmax.py", "softmax", "rows=512,columns=3000", 11),
    ],
)
def test_an_example_is_tuned_and_every_config_computes_what_it_should(
    tmp_path: Path, file: str, kernel: str, key: str, configs: int
) -> None:
    out = whet(tmp_path, "tune", f"{EXAMPLES / file}:{kernel}", "--key", key, "--json", "-q")

    (found,) = json.loads(out)["keys"]
    assert found["workload"]["kernel"] == kernel
    assert found["trials"] == configs
    assert not set(found["statuses"]) & {"wrong_result", "run_error", "build_error"}


@pytest.mark.parametrize("file", ["triton_matmul.py", "triton_softmax.py"])
def test_an_example_runs_by_itself(tmp_path: Path, file: str) -> None:
    assert "/s with " in whet(tmp_path, "run", str(EXAMPLES / file))


def test_a_kernel_of_stock_triton_is_tuned_and_whet_run_finds_the_result(tmp_path: Path) -> None:
    path = tmp_path / "stock.py"
    path.write_text(STOCK)
    made = ("--key", f"n={1 << 20}", "--inputs", f"{path}:call")

    out = whet(tmp_path, "tune", f"{path}:double", *made, "--json", "-q")
    ran = whet(tmp_path, "run", str(path))

    (found,) = json.loads(out)["keys"]
    best = {"BLOCK": found["best"]["config"]["BLOCK"]}
    assert ran.split(" ", 1)[1].startswith(str(best))
    assert whet(tmp_path, "verify", f"{path}:double", *made)

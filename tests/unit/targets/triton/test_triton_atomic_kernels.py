"""The kernels with atomics of `benchmarks/bitwise.py` compute what they say, in the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"

CODE = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from atomic_kernels import KERNELS

for one in KERNELS:
    for config in one.configs:
        torch.manual_seed(0)
        made = one.make(torch, 48, "cpu")
        one.kernel[one.grid({**made, **config})](*made.values(), **config)
        expected = one.expected({**made, **config})
        close = torch.allclose(made[one.out].double(), expected, rtol=1e-3, atol=1e-3)
        print(one.name, "right" if close else "wrong")
"""


@pytest.mark.slow
def test_they_are_right() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(BENCHMARKS)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len({line.split()[0] for line in lines}) >= 5
    assert [line for line in lines if not line.endswith(" right")] == []

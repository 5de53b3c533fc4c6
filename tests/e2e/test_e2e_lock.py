"""Four ranks that start cold with one lock file, as `benchmarks/lock.py` has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "lock.py"


@pytest.mark.whole
def test_cold_ranks_choose_the_same_and_measure_nothing(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    pytest.importorskip("torch.distributed")
    asked = ["--ranks", "4", "--starts", "2", "--keys", "100", "--entries", "0", "--json"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *asked],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["processes"] == 8
    assert (found["differ"], found["measured"], found["clock_reads"]) == (0, 0, 0)
    assert (found["digests"], found["inherited"]) == (1, 50)
    assert found["named_by"] == 4

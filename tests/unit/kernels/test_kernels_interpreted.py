"""The kernels compute what plain torch does, on fifty small shapes each, without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

PROPERTIES = Path(__file__).with_name("kernel_properties.py")


@pytest.mark.slow(80)
@pytest.mark.timeout(900)
def test_every_kernel_agrees_with_plain_torch(tmp_path):
    """All in one process, since importing torch takes as long as the examples of a kernel."""
    variables = {"TRITON_INTERPRET": "1", "WHET_STORE": str(tmp_path / "store.db"), "COSTS": ""}
    words = ["-m", "pytest", "-W", "ignore", "-p", "no:cacheprovider", "--show-capture=no"]
    ran = subprocess.run(
        [sys.executable, *words, str(PROPERTIES)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    assert "9 passed" in ran.stdout

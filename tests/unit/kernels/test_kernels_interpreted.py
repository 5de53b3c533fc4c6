"""The kernels compute what plain torch does, on fifty small shapes each, without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

PROPERTIES = Path(__file__).with_name("kernel_properties.py")

pytestmark = [pytest.mark.medium, pytest.mark.timeout(300)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "rmsnorm_rope_of_rows",
        "rmsnorm_rope_of_heads",
        "gemm",
        "one_row",
        "gated_mlp",
        "attention",
        "fp8_gemm",
        "quantize_fp8",
        "compiled_kernels_and_their_gradients_are_the_same",
    ],
)
def test_agrees_with_plain_torch(name, tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "WHET_STORE": str(tmp_path / "store.db")}
    one = f"{PROPERTIES}::test_{name}"
    words = [sys.executable, "-m", "pytest", "-W", "ignore", "-p", "no:cacheprovider", one]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]

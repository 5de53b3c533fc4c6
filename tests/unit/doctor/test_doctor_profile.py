"""Where the time of a step goes, by the profiler."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")
sys.path.insert(0, str(Path(__file__).parent))

import doctor_models as models  # noqa: E402

from whet.doctor.modes.compiler import by_layer, issued_ns, profiled  # noqa: E402


def test_operations_are_counted_for_one_step() -> None:
    model, x = models.Mlp(), torch.ones(8, 32)

    def repeat(n: int) -> None:
        with torch.no_grad():
            for _ in range(n):
                model(x)

    told = profiled(repeat, gpu=False)
    assert isinstance(told["kernels"], str)
    calls = {name: count for name, count, _ in json.loads(told["kernels"])}
    assert calls["aten::addmm"] == 2
    assert "launches" not in told


def test_time_is_told_by_the_models_own_layers() -> None:
    model, x = models.SelectsByMask(), models.batch()

    def repeat(n: int) -> None:
        for _ in range(n):
            model(x)

    told = by_layer(repeat, gpu=False)
    assert isinstance(told["layers"], str)
    lines = Path(models.__file__).read_text().splitlines()
    begins = lines.index("class SelectsByMask(Layer):") + 4
    shown = [where for where, _ in json.loads(told["layers"])]
    assert f"Linear_0 in forward, doctor_models.py:{begins}" in shown
    assert all(where.endswith(f"doctor_models.py:{begins}") for where in shown)


def test_issuing_waits_for_nobody_in_between() -> None:
    said: list[str] = []
    assert issued_ns(lambda: said.append("step"), lambda: said.append("wait"), steps=3) > 0
    assert said[:5] == ["wait", "step", "step", "step", "wait"]

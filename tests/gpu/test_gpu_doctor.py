"""The doctor on a real GPU: what CUDA graphs do, and where the time of a step goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.medium, pytest.mark.timeout(600)]

MODELS = """\
import torch
from torch import nn


class Many(nn.Module):
    def forward(self, x):
        for _ in range(20):
            x = torch.cumsum(x, 1).sin()  # kernels that are not fused, and short
        return x


class WritesToItsInput(nn.Module):
    def forward(self, x):
        return x.add_(1).sin()


class Moves(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.kept = []

    @torch.compiler.disable
    def move(self):
        self.kept.append(self.linear.weight.data)
        self.linear.weight.data = self.linear.weight.data.clone()

    def forward(self, x):
        self.move()
        return self.linear(x).relu()


def many():
    return Many().cuda(), torch.ones(16, 64, device="cuda")


def writes():
    return WritesToItsInput().cuda(), torch.ones(16, 64, device="cuda")


def moves():
    return Moves().cuda(), torch.ones(16, 64, device="cuda")
"""


def diagnosed(tmp_path: Path, name: str, **more: Any) -> Any:
    from whet.doctor.checkup import doctor_file

    file = tmp_path / "models.py"
    file.write_text(MODELS)
    return doctor_file(file, name, modes=["reduce-overhead"], store=":memory:", **more)


def names(done: Any) -> list[str]:
    return [one.name for one in done.examination.findings]


def test_many_short_kernels_become_one_launch(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = diagnosed(tmp_path, "many", report=report)
    eager, graphs = done.trial.modes
    assert eager.step.launches >= 40
    assert graphs.step.launches < eager.step.launches / 4
    assert graphs.step.device_ns > 0
    assert eager.step.host_ns > 0
    assert eager.peak_bytes > 0
    assert graphs.recorded_again == 0
    assert done.examination.left_out == ()
    assert any("models.py:6" in where for where, _ in eager.step.layers)
    text = report.read_text()
    assert "ttgir, " in text
    assert "ptx, " in text


def test_a_changed_input_keeps_cuda_graphs_from_being_used(tmp_path: Path) -> None:
    done = diagnosed(tmp_path, "writes")
    assert "cuda-graphs" in names(done)
    assert "mutated inputs" in done.trial.modes[1].cudagraph_skip


def test_weights_that_move_are_recorded_again(tmp_path: Path) -> None:
    done = diagnosed(tmp_path, "moves")
    assert "graph-recording" in names(done)
    assert done.trial.modes[1].recorded_again > 0

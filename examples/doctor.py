"""Models for `whet doctor`: one as it is usually first written, and the same without its faults.

whet doctor examples/doctor.py:make_model --findings
whet doctor examples/doctor.py:make_mlp
"""

from __future__ import annotations

import torch
from torch import nn


class LoggedMlp(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(width, width)
        self.linear2 = nn.Linear(width, width)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        hidden = self.linear1(x).relu()
        largest = hidden.abs().max().item()
        out: torch.Tensor = self.linear2(hidden / largest) * self.calls
        return out


class Mlp(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(width, width)
        self.linear2 = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear1(x).relu()
        out: torch.Tensor = self.linear2(hidden / hidden.abs().max())
        return out


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def make_model() -> tuple[nn.Module, torch.Tensor]:
    return LoggedMlp(256).to(device()), torch.randn(64, 256, device=device())


def make_mlp() -> tuple[nn.Module, torch.Tensor]:
    return Mlp(256).to(device()), torch.randn(64, 256, device=device())

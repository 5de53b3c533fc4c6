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
        out: torch.Tensor = self.linear2(self.linear1(x).relu())
        return out


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def make_model() -> tuple[nn.Module, torch.Tensor]:
    return LoggedMlp(256).to(device()), torch.randn(64, 256, device=device())


def make_mlp() -> tuple[nn.Module, torch.Tensor]:
    return Mlp(1024).to(device()), torch.randn(256, 1024, device=device())


def make_transformer() -> tuple[nn.Module, torch.Tensor]:
    """In half precision on a GPU. It stays in training mode, since in eval mode torch replaces the
    whole layer by one fused operation."""
    dtype = torch.float16 if device() == "cuda" else torch.float32
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    return layer.to(device(), dtype), torch.randn(8, 128, 512, device=device(), dtype=dtype)

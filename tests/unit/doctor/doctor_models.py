"""Twelve models with a disease and eight without. A comment `finds: NAME` marks the line that a
finding of that name must point to."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(16, 16)


def batch(rows: int = 4) -> torch.Tensor:
    return torch.randn(rows, 16, generator=torch.Generator().manual_seed(1))


class Prints(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        print("after the layer", x.shape)  # finds: graph-break
        return x.relu()


class TakesItem(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        total = x.sum().item()  # finds: graph-break
        return x * total


class GoesThroughNumpy(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        values = x.detach().numpy()
        return x + float(values.max())  # finds: graph-break


class Branches(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        if x.sum() > 0:  # finds: graph-break
            return x.relu()
        return x.tanh()


class SeesManySizes(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # finds: recompilation
        return self.linear(x).relu()


class WritesToAView(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left = x[:, :8]
        left.add_(1)  # finds: input-mutation
        return self.linear(x)


class Upcasts(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(16, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale  # finds: upcast


class TakesAList(Layer):
    def forward(self, x: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        return self.linear(x)[:, : len(sizes)]  # finds: recompilation


class Counts(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1  # finds: recompilation
        return self.linear(x) * self.calls


class CopiesToTheHost(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        largest = x.amax().cpu()  # finds: host-copy
        return x / largest


class MovesToTheHost(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        return x / x.amax().to("cpu")  # finds: host-copy


class CallsAStranger(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        name = hashlib.sha256(b"seed").hexdigest()  # finds: graph-break
        return x + len(name)


class LoudClamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        print("clamping")  # finds: graph-break
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return upstream * (x > 0)


class HasItsOwnFunction(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = LoudClamp.apply(self.linear(x))
        return out


class QuietClamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return upstream * (x > 0)


SICK: dict[type[nn.Module], Any] = {
    Prints: batch(),
    TakesItem: batch(),
    GoesThroughNumpy: batch(),
    Branches: batch(),
    SeesManySizes: [batch(4), batch(5), batch(6)],
    WritesToAView: batch(),
    Upcasts: batch(),
    TakesAList: [(batch(), [1] * length) for length in (1, 2, 3)],
    Counts: batch(),
    CopiesToTheHost: batch(),
    CallsAStranger: batch(),
    HasItsOwnFunction: batch(),
}


class Mlp(nn.Module):
    """The blog's."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.linear1 = nn.Linear(width, width)
        self.relu = nn.ReLU()
        self.linear2 = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear2(self.relu(self.linear1(x)))
        return out


class HalfNorm(nn.Module):
    """Computes its mean in float32 on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return normed.to(x.dtype) * self.weight


class Convolves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x).mean((2, 3))
        return out


class Embeds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        hidden = self.table(tokens)
        if mask is not None:
            hidden = hidden * mask.unsqueeze(-1)
        out: torch.Tensor = self.head(hidden)
        return out


class SelectsByMask(Layer):
    """The branch as torch.where, and a view written to that is its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        y[:, 0] = 0
        return torch.where(y > 0, y, y.tanh())


class ClampsQuietly(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = QuietClamp.apply(self.linear(x))
        return out


def transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)


class FollowsItsInput(Layer):
    """As transformers do; on a CPU torch captures the same as for `.to("cpu")`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(x.shape[1]).to(x.device, x.dtype)
        return self.linear(x) + steps.to(device=x.device)


HEALTHY: dict[Any, Any] = {
    Mlp: torch.ones(8, 32),
    transformer: torch.ones(2, 5, 32),
    HalfNorm: batch().bfloat16(),
    Convolves: torch.ones(2, 3, 8, 8),
    Embeds: {"tokens": torch.ones(2, 5, dtype=torch.long), "mask": torch.ones(2, 5)},
    SelectsByMask: batch(),
    ClampsQuietly: batch(),
    FollowsItsInput: batch(),
}

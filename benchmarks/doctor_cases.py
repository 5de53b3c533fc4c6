"""The models of `benchmarks/doctor_verdicts.py`: functions that return a model and its inputs."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Made = tuple[nn.Module, Any]

# Not part of the project: model.py of github.com/karpathy/nanoGPT, brought along as it is.
PUBLIC = Path(os.environ.get("WHET_NANOGPT", Path(__file__).parents[1] / ".carry/nanogpt/model.py"))

VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH = 50304, 1024, 12, 12, 768
SMALL = bool(os.environ.get("WHET_SMALL"))  # to try the script without a GPU


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


class BlogMlp(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(width, width)
        self.relu = nn.ReLU()
        self.linear2 = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear2(self.relu(self.linear1(x)))
        return out


def mlp() -> Made:
    width = 64 if SMALL else 1024
    return BlogMlp(width).to(device()), torch.randn(256, width, device=device())


class ArticleLayer(nn.Module):  # type: ignore[misc]
    """Norm first, one attention, one feed-forward part of four times the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.norm1(x)
        x = x + self.attention(seen, seen, seen)[0]
        out: torch.Tensor = x + self.feed(self.norm2(x))
        return out


def transformer() -> Made:
    """The article's layer, in half precision."""
    width, heads = (64, 4) if SMALL else (1024, 16)
    dtype = torch.float16 if device() == "cuda" else torch.float32
    x = torch.randn(4, 16 if SMALL else 512, width, device=device(), dtype=dtype)
    return ArticleLayer(width, heads).to(device(), dtype), x


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        out: torch.Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return out


class Gpt2(nn.Module):  # type: ignore[misc]
    def __init__(self, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        at = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.places(at)
        for block in self.blocks:
            x = block(x)
        out: torch.Tensor = self.head(self.norm(x))
        return out


def gpt2(rows: int = 4, length: int = 512) -> Made:
    layers, heads, width = (2, 2, 64) if SMALL else (LAYERS, HEADS, WIDTH)
    dtype = torch.bfloat16 if device() == "cuda" else torch.float32
    model = Gpt2(layers, heads, width).to(device(), dtype).eval()
    size = (1, 16) if SMALL else (rows, length)
    return model, torch.randint(0, VOCABULARY, size, device=device())


def gpt2_training() -> Made:
    model, tokens = gpt2()
    return model.train(), tokens


def nanogpt() -> Made:
    """A model that nobody here wrote."""
    if not PUBLIC.exists():
        raise SystemExit(f"no {PUBLIC}: put nanoGPT's model.py there, or set WHET_NANOGPT")
    spec = importlib.util.spec_from_file_location("nanogpt_model", PUBLIC)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    layers, heads, width = (2, 2, 64) if SMALL else (LAYERS, HEADS, WIDTH)
    config = module.GPTConfig(
        block_size=CONTEXT, n_layer=layers, n_head=heads, n_embd=width, dropout=0.0
    )
    dtype = torch.bfloat16 if device() == "cuda" else torch.float32
    model = module.GPT(config).to(device(), dtype).eval()
    size = (1, 16) if SMALL else (4, 512)
    return model, torch.randint(0, VOCABULARY, size, device=device())

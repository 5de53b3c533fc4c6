"""Two small kernels of a program, autotuned on the fake driver; for tests of warm-ups."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

import whet
from whet.testing.fake_triton import told

N = 64


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


@triton.jit
def shift(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) + 1, mask=offsets < n)


def tuned(jit: Any = scale, blocks: tuple[int, ...] = (16, 32, 64), *, best: int = 32) -> Any:
    configs = [triton.Config({"BLOCK": block}) for block in blocks]
    kernel = whet.autotune(configs=configs, key=["n"])(jit)
    kernel.whet_timer = told(lambda config: 1e3 if config.kwargs["BLOCK"] == best else 9e3)
    return kernel

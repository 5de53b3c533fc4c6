"""A small kernel with a hundred configs, for a GPU or for a driver that launches nothing."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import triton
import triton.language as tl

import whet

N = 4096


@triton.jit  # type: ignore[untyped-decorator]
def scale(out, x, n, BLOCK: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    for start in range(0, n, BLOCK * STEP):
        offsets = start + tl.arange(0, BLOCK)
        tl.store(out + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


CONFIGS = [
    triton.Config({"BLOCK": block, "STEP": step}, num_warps=warps)
    for block in (64, 128, 256, 512, 1024)
    for step in range(1, 11)
    for warps in (4, 8)
]
tuned = whet.autotune(configs=CONFIGS, key=["n"], budget="12trials")(scale)


def has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def wake(stack: ExitStack) -> None:
    """What a program has done long before it calls its first kernel."""
    if has_gpu():
        import torch

        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        return
    from whet.testing.fake_triton import fake_driver, told

    stack.enter_context(fake_driver())
    setattr(tuned, "whet_timer", told(lambda config: 1000.0 + config.kwargs["BLOCK"]))  # noqa: B010


def arguments() -> tuple[Any, ...]:
    if has_gpu():
        import torch

        return torch.empty(N, device="cuda"), torch.ones(N, device="cuda"), N
    from whet.testing.fake_triton import FakeTensor

    return FakeTensor([0.0]), FakeTensor([1.0], address=8192), N

"""A kernel of which some configs are poisoned, each in its own way, chosen by a constant.

A module of its own, since a hook has to be importable by the process that measures.
"""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

HEALTHY, FAR, ENDLESS, MEMORY, ASSERT, WRONG = range(6)

NAMES = {
    FAR: "out of bounds",
    ENDLESS: "endless",
    MEMORY: "out of memory",
    ASSERT: "device assert",
    WRONG: "wrong result",
}
COUNTS = {FAR: 4, ENDLESS: 2, MEMORY: 2, ASSERT: 2, WRONG: 2}
STATUS = {
    FAR: "run_error",
    ENDLESS: "run_timeout",
    MEMORY: "resources",
    ASSERT: "run_error",
    WRONG: "wrong_result",
}
CONFIGS = 40


@triton.jit(debug=True)
def poisoned_kernel(
    x_ptr, y_ptr, flag_ptr, n, BLOCK: tl.constexpr, WORK: tl.constexpr, POISON: tl.constexpr
):
    """y = 2 x, after `WORK` more reads of x than it takes."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    more = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(WORK):
        more += tl.load(x_ptr + offsets, mask=inside, other=0.0, volatile=True)
    if POISON == 1:
        more += tl.load(x_ptr + offsets.to(tl.int64) + (1 << 44), volatile=True)
    if POISON == 2:
        waiting = tl.load(flag_ptr, volatile=True)
        while waiting == 0:
            waiting = tl.load(flag_ptr, volatile=True)
    if POISON == 4:
        tl.device_assert(offsets < 0, "poisoned")
    y = 2.0 * x + 0.0 * more
    if POISON == 5:
        y += 1.0
    tl.store(y_ptr + offsets, y, mask=inside)


def exhaust(arguments: Mapping[str, Any]) -> None:
    """A hook that wants more memory than the card has."""
    whole = torch.cuda.mem_get_info()[1]
    torch.empty(2 * whole, dtype=torch.uint8, device="cuda")


def configs(seed: int, poisons: Mapping[int, int] = COUNTS, count: int = CONFIGS) -> list[Any]:
    """In random order. One healthy config does no more than is needed: that is the best."""
    listed = []
    for poison, many in poisons.items():
        hook = exhaust if poison == MEMORY else None
        for number in range(many):
            constants = {"BLOCK": 1024, "WORK": number + 1, "POISON": poison}
            listed.append(triton.Config(constants, num_warps=4, pre_hook=hook))
    for number in range(count - len(listed)):
        constants = {"BLOCK": 1024, "WORK": 4 * number, "POISON": HEALTHY}
        listed.append(triton.Config(constants, num_warps=4))
    random.Random(seed).shuffle(listed)
    return listed


def is_best(config: Any) -> bool:
    return bool(config.kwargs["POISON"] == HEALTHY and config.kwargs["WORK"] == 0)


def doubled(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The check function."""
    return {"y_ptr": 2.0 * arguments["x_ptr"]}


def inputs(n: int = 1 << 24) -> tuple[Any, Any, Any, int]:
    torch.manual_seed(0)
    x = torch.rand(n, device="cuda")
    return x, torch.zeros_like(x), torch.zeros(1, dtype=torch.int32, device="cuda"), n


def grid(meta: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)

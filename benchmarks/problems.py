"""What the benchmarks tune: configs, sizes, and how a size is called.

Configs and sizes are plain numbers, so that a process that must not touch the device can have them;
`Problem.bind` imports the kernel.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

Size = tuple[int, ...]
Numbers = dict[str, int]

GEMM_META = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
OPTIONS = ("num_stages", "num_warps")

PAPER_DIMENSIONS = (256, 512, 1024, 4096)
PAPER_CONFIGS = 100
PAPER_SIZES = tuple(itertools.product(PAPER_DIMENSIONS, repeat=3))

TABLE_2_SIZES = tuple((n, n, n) for n in (256, 384, 640, 768, 2560, 2688, 3840, 3968, 4096))

SOFTMAX_SIZES = (
    (1024, 1024),
    (8192, 1024),
    (8192, 2048),
    (4096, 4096),
    (16384, 4096),
    (2048, 8192),
    (1024, 16384),
    (512, 32768),
)
# Heads in sixteens: Triton compiles once more for a number that 16 does not divide.
ATTENTION_SIZES = (
    (16, 512),
    (64, 512),
    (16, 1024),
    (64, 1024),
    (16, 2048),
    (64, 2048),
    (16, 4096),
    (16, 8192),
)


@dataclass(frozen=True)
class Bound:
    """One size on the device. `error()` compares what is in the output with torch's result."""

    kernel: Any
    arguments: tuple[Any, ...]
    grid: Any
    error: Callable[[], float]

    def launcher(self, config: Mapping[str, int]) -> Callable[[], Any]:
        return partial(self.kernel.run, *self.arguments, grid=self.grid, warmup=False, **config)


@dataclass(frozen=True)
class Problem:
    """`wrong_above` is the relative error beyond which a result is wrong."""

    name: str
    key: tuple[str, ...]
    configs: tuple[Numbers, ...]
    sizes: tuple[Size, ...]
    binder: Callable[[], Callable[[Size], Bound]]
    wrong_above: float = 2e-3

    def bind(self) -> Callable[[Size], Bound]:
        """A function from a size to its call. Inputs are made when it is asked for."""
        return self.binder()

    def index_of(self, config: Mapping[str, Any]) -> int:
        """Which of the configs it is; what else a tuner adds to it does not matter."""
        for index, numbers in enumerate(self.configs):
            if all(config.get(name) == value for name, value in numbers.items()):
                return index
        raise ValueError(f"{self.name} has no config {dict(config)}")


def triton_config(numbers: Mapping[str, int]) -> Any:
    import triton

    meta = {name: value for name, value in numbers.items() if name not in OPTIONS}
    return triton.Config(meta, **{name: numbers[name] for name in OPTIONS if name in numbers})


def problem(name: str) -> Problem:
    """`gemm:SEED` (the paper's suite), `tutorial`, `softmax` or `attention`."""
    kind, _, detail = name.partition(":")
    if kind == "gemm":
        configs = paper_configs(int(detail))
        return Problem(name, ("M", "N", "K"), configs, PAPER_SIZES, _bind_gemm)
    if kind == "gemm576":
        return Problem(name, ("M", "N", "K"), large_configs(), PAPER_SIZES, _bind_gemm)
    if kind == "tutorial":
        return Problem(name, ("M", "N", "K"), _tutorial_configs(), TABLE_2_SIZES, _bind_gemm)
    if kind == "softmax":
        return Problem(name, ("rows", "columns"), softmax_configs(), SOFTMAX_SIZES, _bind_softmax)
    if kind == "attention":
        key = ("heads", "sequence")
        return Problem(name, key, attention_configs(), ATTENTION_SIZES, _bind_attention, 5e-3)
    raise ValueError(f"there is no problem '{name}'")


def paper_configs(seed: int) -> tuple[Numbers, ...]:
    """100 of the 576 configs of the cost paper, without repeats, in random order."""
    blocks = (32, 64, 128, 256)
    space = list(itertools.product(blocks, blocks, blocks, (8,), (3, 4, 5), (2, 4, 8)))
    drawn = random.Random(seed).sample(space, PAPER_CONFIGS)
    return tuple(dict(zip((*GEMM_META, *OPTIONS), numbers, strict=True)) for numbers in drawn)


def large_configs() -> tuple[Numbers, ...]:
    """576: 4 × 4 × 3 blocks, 2 to 5 stages, 2, 4 or 8 warps."""
    blocks = (32, 64, 128, 256)
    space = itertools.product(blocks, blocks, (16, 32, 64), (8,), (2, 3, 4, 5), (2, 4, 8))
    return tuple(dict(zip((*GEMM_META, *OPTIONS), numbers, strict=True)) for numbers in space)


def _tutorial_configs() -> tuple[Numbers, ...]:
    from triton_kernels import tutorial_configs

    wanted = (*GEMM_META, *OPTIONS)
    return tuple(
        {name: config.all_kwargs()[name] for name in wanted} for config in tutorial_configs()
    )


def softmax_configs() -> tuple[Numbers, ...]:
    """Between 4 and 64 elements a thread: fewer leave it idle, more spill."""
    found = []
    for rows, chunk, warps, stages in itertools.product(
        (1, 2, 4), (1024, 2048, 4096, 8192), (2, 4, 8, 16), (1, 3)
    ):
        if 4 <= rows * chunk // (32 * warps) <= 64:
            found.append({"ROWS": rows, "CHUNK": chunk, "STAGES": stages, "num_warps": warps})
    return tuple(found)


def attention_configs() -> tuple[Numbers, ...]:
    """At most 128 scores a thread: more spill."""
    found = []
    for m, n, warps, stages in itertools.product(
        (32, 64, 128, 256), (32, 64, 128), (4, 8), (2, 3, 4)
    ):
        if m * n // (32 * warps) <= 128:
            found.append({"BLOCK_M": m, "BLOCK_N": n, "num_warps": warps, "num_stages": stages})
    return tuple(found)


def text_of(numbers: Mapping[str, int]) -> str:
    """`128×64×32, 4 stages, 8 warps`, or name by name where blocks are not all there is."""
    if "BLOCK_SIZE_M" in numbers:
        blocks = "×".join(str(numbers[name]) for name in GEMM_META[:3])
        return f"{blocks}, {numbers['num_stages']} stages, {numbers['num_warps']} warps"
    return ", ".join(f"{name} {value}" for name, value in numbers.items())


def size_text(size: Sequence[int]) -> str:
    return "×".join(map(str, size))


def _bind_gemm() -> Callable[[Size], Bound]:
    import torch

    from triton_kernels import matmul_arguments, matmul_grid, matmul_kernel, relative_error

    torch.manual_seed(0)
    largest = 4096 * 4096
    # Views of these, so that 64 sizes need no 64 allocations. Never zeros: they draw less power.
    pools = [torch.randn(largest, device="cuda", dtype=torch.float16) for _ in range(2)]
    product = torch.empty(largest, device="cuda", dtype=torch.float16)

    def bound(size: Size) -> Bound:
        m, n, k = size
        a, b = (pool[: x * y].view(x, y) for pool, x, y in zip(pools, (m, k), (k, n), strict=True))
        c = product[: m * n].view(m, n)
        error = partial(relative_error, a, b, c)
        return Bound(matmul_kernel, matmul_arguments(a, b, c), matmul_grid(m, n), error)

    return bound


def _bind_softmax() -> Callable[[Size], Bound]:
    from softmax_kernels import (
        softmax_arguments,
        softmax_error,
        softmax_grid,
        softmax_inputs,
        softmax_kernel,
    )

    def bound(size: Size) -> Bound:
        rows, columns = size
        x, y = softmax_inputs(rows, columns)
        arguments = softmax_arguments(x, y)
        return Bound(softmax_kernel, arguments, softmax_grid(rows), partial(softmax_error, x, y))

    return bound


def _bind_attention() -> Callable[[Size], Bound]:
    from attention_kernels import (
        attention_arguments,
        attention_error,
        attention_grid,
        attention_inputs,
        attention_kernel,
    )

    def bound(size: Size) -> Bound:
        heads, sequence = size
        tensors = attention_inputs(heads, sequence)
        error = partial(attention_error, *tensors)
        grid = attention_grid(heads, sequence)
        return Bound(attention_kernel, attention_arguments(*tensors), grid, error)

    return bound

"""The spaces of the kernels in this package. The first value of each parameter is the default.

Constraints keep out what cannot be fast: tiles that do not fit into shared memory or registers
however they are compiled, and warps with nothing to do.
"""

from __future__ import annotations

from typing import Any

from whet.core.space import Space

# Elements of a row at a time; `ROWS` tokens one after another in a program, whose loads overlap
# where `STAGES` is more than one.
RMSNORM_ROPE_SPACE = Space(
    {
        "BLOCK_SIZE": [4096, 8192, 2048, 1024, 512],
        "ROWS": [1, 2, 4, 8],
        "STAGES": [1, 2],
        "num_warps": [8, 4, 16, 2],
    },
    constraints=[
        "BLOCK_SIZE >= 128 * num_warps",
        "BLOCK_SIZE <= 1024 * num_warps",
        "STAGES == 1 or ROWS > 1",
    ],
)

# Two products share the tile of x and keep two accumulators. `SPLIT_K` programs share a tile where
# there are too few tiles for the GPU; `PERSISTENT` ones take several tiles one after another;
# `DESCRIPTORS` load through the tensor memory accelerator.
GATED_MLP_SPACE = Space(
    {
        "BLOCK_M": [128, 64, 32, 16],
        "BLOCK_N": [128, 64, 32],
        "BLOCK_K": [64, 128],
        "GROUP_M": [8, 1],
        "SPLIT_K": [1, 2, 4, 8],
        "PERSISTENT": [False, True],
        "DESCRIPTORS": [False, True],
        "num_warps": [8, 4],
        "num_stages": [4, 3, 5],
    },
    constraints=[
        # x, gate and up of every stage, two bytes each, in 227 KiB.
        "2 * num_stages * BLOCK_K * (BLOCK_M + 2 * BLOCK_N) <= 232448",
        # Two accumulators of four bytes, in at most 128 registers of a thread.
        "2 * BLOCK_M * BLOCK_N <= 128 * 32 * num_warps",
        "BLOCK_M * BLOCK_N >= 128 * num_warps",
        "SPLIT_K == 1 or BLOCK_M <= 64",
        "SPLIT_K == 1 or not PERSISTENT",
        "BLOCK_M >= 64 or not PERSISTENT",
        "BLOCK_M >= 64 or GROUP_M == 1",
        "BLOCK_M == 128 or num_warps == 4",
        "BLOCK_K < 128 or BLOCK_M <= 64",
        "BLOCK_N >= 64 or BLOCK_M <= 64",
        "BLOCK_M == 128 or num_stages > 3 or BLOCK_K == 128",
    ],
)


def _product_space(widths: list[int], element_bytes: int, more: tuple[str, ...] = ()) -> Space:
    """Tiles of one accumulator; as deep as 128 or 256 bytes of K."""
    deep = 128 // element_bytes
    return Space(
        {
            "BLOCK_M": [128, 64, 256, 32, 16],
            "BLOCK_N": widths,
            "BLOCK_K": [deep, 2 * deep],
            "GROUP_M": [8, 1],
            "SPLIT_K": [1, 2, 4, 8],
            "PERSISTENT": [True, False],
            "DESCRIPTORS": [True, False],
            "num_warps": [8, 4],
            "num_stages": [4, 3, 5],
        },
        constraints=[
            f"{element_bytes} * num_stages * BLOCK_K * (BLOCK_M + BLOCK_N) <= 232448",
            "BLOCK_M * BLOCK_N <= 128 * 32 * num_warps",
            "BLOCK_M * BLOCK_N >= 128 * num_warps",
            "SPLIT_K == 1 or BLOCK_M <= 64",
            "SPLIT_K == 1 or not PERSISTENT",
            "BLOCK_M >= 64 or not PERSISTENT",
            "BLOCK_M >= 64 or GROUP_M == 1",
            "BLOCK_M >= 128 or num_warps == 4",
            f"BLOCK_K < {2 * deep} or BLOCK_M <= 64",
            "BLOCK_N <= 128 or BLOCK_M >= 64",
            "BLOCK_N >= 64 or BLOCK_M <= 64",
            f"BLOCK_M >= 128 or num_stages > 3 or BLOCK_K == {2 * deep}",
            *more,
        ],
    )


GEMM_SPACE = _product_space([256, 128, 64, 32], 2)

FP8_GEMM_SPACE = _product_space([128, 256, 64, 32], 1, ("BLOCK_K < 256 or num_stages < 5",))

# One row: as many elements of the weights in flight as there are registers for, 8 to 64 a thread.
ROW_SPACE = Space(
    {
        "BLOCK_N": [4, 2, 8, 1, 16],
        "BLOCK_K": [512, 1024, 256, 2048],
        "STAGES": [1, 3],
        "num_warps": [4, 8, 2, 1],
    },
    constraints=[
        "BLOCK_N * BLOCK_K <= 64 * 32 * num_warps",
        "BLOCK_N * BLOCK_K >= 8 * 32 * num_warps",
        "STAGES == 1 or BLOCK_N * BLOCK_K <= 32 * 32 * num_warps",
        # 16 bytes a thread, of one row after another.
        "BLOCK_K >= 256 * num_warps or BLOCK_N >= num_warps",
    ],
)

ATTENTION_SPACE = Space(
    {
        "BLOCK_M": [128, 64],
        "BLOCK_N": [64, 128, 32],
        "num_warps": [8, 4],
        "num_stages": [3, 2],
    },
    constraints=["BLOCK_M >= 16 * num_warps", "BLOCK_N <= BLOCK_M"],
)


def values_of(space: Space, *names: str) -> dict[str, list[Any]]:
    """A space as the class API has it: a dictionary of lists, in ascending order."""
    by_name = {parameter.name: parameter.values for parameter in space.parameters}
    return {name: sorted(by_name[name]) for name in names or by_name}


def default_of(space: Space, *names: str) -> dict[str, Any]:
    """The author's first config, as far as these parameters go. No constraint forbids it: to ask
    the solver would be most of what importing these spaces takes."""
    first = {parameter.name: parameter.values[0] for parameter in space.parameters}
    return {name: first[name] for name in names}

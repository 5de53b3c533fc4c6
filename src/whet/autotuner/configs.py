"""Config spaces of three well-known fused kernels, and what one does with such a space.

A space is a plain dictionary from a parameter's name to the values it may take. `BLOCK_SIZE` is
how many elements of a row a program handles at a time, `ROWS` how many rows one after another and
`STAGES` how many of them are loaded ahead, `BLOCK_M/N/K` the tile of a matrix product, `GROUP_M`
how many rows of tiles share the L2 cache, `SPLIT_K` how many programs share a tile, `PERSISTENT`
whether one takes several, `DESCRIPTORS` whether it loads through the tensor memory accelerator;
`num_warps` and `num_stages` are Triton's.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from whet.core.errors import TuningFailedError, UsageError, did_you_mean
from whet.kernels.spaces import (
    FP8_GEMM_SPACE,
    GATED_MLP_SPACE,
    RMSNORM_ROPE_SPACE,
    default_of,
    values_of,
)


class ArgumentError(UsageError, ValueError):
    """A `UsageError` that code which knows nothing of whet can catch as a `ValueError`."""


class EmptySpaceError(ArgumentError, TuningFailedError):
    """Nothing to choose from: said early, and the same failure as when no config works."""

    exit_code = 1


# The parameters of the kernels in `whet.kernels`, without the constraints of their spaces.
RMSNORM_ROPE_CONFIGS: dict[str, list[Any]] = values_of(RMSNORM_ROPE_SPACE)

GATED_MLP_CONFIGS: dict[str, list[Any]] = values_of(GATED_MLP_SPACE)

# The shortest is for K = 64: the kernel masks what a tile has beyond K, `filter_valid_configs`
# leaves such tiles out.
FP8_GEMM_CONFIGS: dict[str, list[Any]] = {
    name: [64, *values] if name == "BLOCK_K" else values
    for name, values in values_of(FP8_GEMM_SPACE).items()
}

_DEFAULTS: dict[str, dict[str, Any]] = {
    "rmsnorm_rope": default_of(RMSNORM_ROPE_SPACE, *RMSNORM_ROPE_CONFIGS),
    "gated_mlp": default_of(GATED_MLP_SPACE, *GATED_MLP_CONFIGS),
    "fp8_gemm": default_of(FP8_GEMM_SPACE, *FP8_GEMM_CONFIGS),
}

# `tl.dot` takes no side shorter than this, so a tile of 16 is right for one row too.
_SMALLEST_TILE = 16
_BLOCKS = ("BLOCK_SIZE", "BLOCK_M", "BLOCK_N", "BLOCK_K")


def generate_configs(config_space: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns every combination; the last parameter varies fastest.

    `{"a": [1, 2], "b": [3]}` → `[{"a": 1, "b": 3}, {"a": 2, "b": 3}]`
    """
    check_config_space(config_space)
    names = list(config_space)
    return [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*config_space.values())
    ]


def filter_valid_configs(
    configs: Iterable[Mapping[str, Any]],
    hidden_dim: int | None = None,
    intermediate_dim: int | None = None,
    M: int | None = None,  # noqa: N803  the mathematical names
    N: int | None = None,  # noqa: N803
    K: int | None = None,  # noqa: N803
) -> list[dict[str, Any]]:
    """Keeps the configs whose block sizes make sense for the given dimensions.

    - A block size must be a positive power of two, as `tl.arange` requires.
    - A block must not be longer than its dimension rounded up to a power of two; beyond that, a
      program only does masked work. For `BLOCK_M/N/K` the bound is at least 16.
    - `BLOCK_SIZE` is compared with `hidden_dim`, `BLOCK_M` with `M`, `BLOCK_N` with `N` and
      `intermediate_dim`, `BLOCK_K` with `K` and `hidden_dim`.

    Warns if configs were given and none is left.
    """
    bounds = {
        "BLOCK_SIZE": _bound(1, hidden_dim=hidden_dim),
        "BLOCK_M": _bound(_SMALLEST_TILE, M=M),
        "BLOCK_N": _bound(_SMALLEST_TILE, N=N, intermediate_dim=intermediate_dim),
        "BLOCK_K": _bound(_SMALLEST_TILE, K=K, hidden_dim=hidden_dim),
    }
    given = [dict(config) for config in configs]
    refusals = [_refusal(config, bounds) for config in given]
    valid = [config for config, why in zip(given, refusals, strict=True) if why is None]
    if given and not valid:
        warnings.warn(
            f"none of the {len(given)} configs fits these dimensions; the first was rejected "
            f"because {refusals[0]}",
            stacklevel=2,
        )
    return valid


def get_default_config(kernel_type: str) -> dict[str, Any]:
    """Returns a reasonable first config for `rmsnorm_rope`, `gated_mlp` or `fp8_gemm`."""
    if kernel_type not in _DEFAULTS:
        raise ArgumentError(
            "no default config for kernel type "
            f"{kernel_type!r}{did_you_mean(str(kernel_type), _DEFAULTS)}"
        )
    return dict(_DEFAULTS[kernel_type])


def check_config_space(config_space: object) -> None:
    """Raises unless it maps names to non-empty lists (or tuples) of values."""
    if not isinstance(config_space, Mapping):
        raise ArgumentError(
            f"config_space is a {type(config_space).__name__}; "
            "give a dict from parameter names to lists of values"
        )
    if not config_space:
        raise EmptySpaceError('config_space is empty; add parameters, such as {"BLOCK": [64]}')
    for name, values in config_space.items():
        if not isinstance(name, str):
            raise ArgumentError(f"config_space has the key {name!r}; keys must be strings")
        if not isinstance(values, list | tuple):
            raise ArgumentError(
                f"config_space['{name}'] is {values!r}; give a list of values, such as [{values!r}]"
            )
        if not values:
            raise EmptySpaceError(f"config_space['{name}'] is empty; list at least one value")


def _bound(floor: int, **dimensions: int | None) -> int | None:
    """The longest block that any of the dimensions allows; None where none is given."""
    longest: int | None = None
    for name, length in dimensions.items():
        if length is None:
            continue
        if isinstance(length, bool) or not hasattr(length, "__index__") or length < 1:
            raise ArgumentError(f"{name} is {length!r}; give a whole number of at least 1")
        allowed = max(floor, 1 << (int(length) - 1).bit_length())
        longest = allowed if longest is None else min(longest, allowed)
    return longest


def _refusal(config: Mapping[str, Any], bounds: Mapping[str, int | None]) -> str | None:
    for name in _BLOCKS:
        if name not in config:
            continue
        block, bound = config[name], bounds[name]
        if not isinstance(block, int) or block < 1 or block & (block - 1):
            return f"{name}={block!r} is not a power of two"
        if bound is not None and block > bound:
            return f"{name}={block} is longer than {bound}"
    return None

"""What the kernels share: one clear error for each argument that is wrong, and results that come
with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from whet.core.errors import UsageError
from whet.engine.fallback.calls import ship

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


class ShapeError(UsageError, ValueError):
    """Tensors that do not fit together."""


def shape(tensor: Any) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"


def check_tensors(what: str, **tensors: Any) -> None:
    """All of one floating dtype, on one device; None is a tensor that is not there. Every call of a
    kernel waits for this."""
    first_name, dtype, device = "", None, None
    for name, one in tensors.items():
        if one is None:
            continue
        if not isinstance(one, torch.Tensor):
            raise ShapeError(f"{what}: {name} is a {type(one).__name__}; give a tensor")
        if not first_name:
            first_name, dtype, device = name, one.dtype, one.device
            if dtype not in FLOATS:
                raise ShapeError(f"{what}: {name} is {dtype}; give float16, bfloat16 or float32")
        elif one.device != device:
            raise ShapeError(
                f"{what}: {name} is on {one.device} and {first_name} on {device}; move one"
            )
        elif one.dtype is not dtype:
            raise ShapeError(
                f"{what}: {name} is {one.dtype} and {first_name} is {dtype}; convert one"
            )


def wrong(what: str, problem: str) -> ShapeError:
    """To be raised; the text is made only where it is needed."""
    return ShapeError(f"{what}: {problem}")


def as_rows(x: Any) -> Any:
    """As a matrix, whatever leads; also where there is nothing in it."""
    if x.ndim == 2:
        return x
    return x[None] if x.ndim == 1 else x.flatten(0, -2)


# On the GPUs they are for, nothing needs tuning.
RESULTS = Path(__file__).with_name("results")


def use_shipped_results() -> None:
    """They lie under the user's own, and hold for the versions of torch and Triton they were
    measured with."""
    for bundle in sorted(RESULTS.glob("*.whet")):
        ship(bundle)

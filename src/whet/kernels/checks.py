"""What the kernels share: one clear error for each argument that is wrong, and results that come
with the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from whet.core.errors import UsageError
from whet.engine.fallback.calls import checked_wait, ship
from whet.targets.choice.keys import guard

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


# So many kinds of calls are told apart before all are forgotten, and so many of the same sizes.
MOST_KINDS = 4096
MOST_ALIKE = 4


class Examined:
    """A check of arguments, made once for calls of one kind.

    The first `tensors` of the arguments are tensors or None. A kind has the same classes, dtypes,
    devices, sizes and strides of these, as torch's own guards tell them, and the same other values.
    """

    def __init__(self, check: Callable[..., Any], tensors: int) -> None:
        self._check, self._tensors = check, tensors
        self._kinds: dict[Any, list[tuple[Callable[..., bool], Any]]] = {}

    def __call__(self, *given: Any) -> Any:
        """What the check returns."""
        if torch.compiler.is_compiling():
            return self._check(*given)
        tensors = [one for one in given[: self._tensors] if one is not None]
        try:
            key = (*map(type, given), given[0].shape, *given[self._tensors :])
            for alike, found in self._kinds[key]:
                if alike(*tensors):
                    return found
        except (KeyError, TypeError, AttributeError):
            pass
        found = self._check(*given)
        self._learn(tensors, found, given)
        return found

    def _learn(self, tensors: list[Any], found: Any, given: tuple[Any, ...]) -> None:
        if len(self._kinds) >= MOST_KINDS:
            self._kinds.clear()
        try:
            key = (*map(type, given), given[0].shape, *given[self._tensors :])
            known = self._kinds.setdefault(key, [])
        except (TypeError, AttributeError):  # a value that cannot be compared
            return
        if len(known) < MOST_ALIKE:
            known.append((guard(tensors) or _never, found))


def _never(*tensors: Any) -> bool:
    """Of what torch makes no guards: one tensor given twice, say."""
    return False


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


# Programs meet new sizes all the time, token counts above all: calls of one function wait for so
# much tuning, and then take the best of the nearest size at once.
WAIT_LIMIT = "10s"


def limit_waits(*kernels: Any) -> None:
    """The same for Triton kernels that are a part of a choice."""
    for kernel in kernels:
        kernel.whet_wait_limit_s = checked_wait(WAIT_LIMIT)


def use_shipped_results() -> None:
    """They lie under the user's own, and hold for the versions of torch and Triton they were
    measured with."""
    for bundle in sorted(RESULTS.glob("*.whet")):
        ship(bundle)

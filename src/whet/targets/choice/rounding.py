"""What rounding does to a result: the call again, with each of its numbers rounded once more.

Two right implementations round in different places, so they may differ by as much as a few
roundings change the result. How much that is says the operation itself: a sum of large numbers that
comes out small is as far off as the large numbers are.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.targets.choice.arguments import copied, flattened, is_tensor

# What right implementations may differ by: sums in another order, and for halves every
# intermediate result rounded.
_RELATIVE = {
    "float64": 1e-8,
    "complex128": 1e-8,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 1e-2,
    "bfloat16": 4e-2,
}

# On a GPU, products of float32 may be computed in TF32: its step, and what they may differ by.
_TF32 = (2.0**-10, 1e-3)

# Once every number goes up, then each up or down at random.
TURNS = 4


@dataclass(frozen=True)
class Rounding:
    """How much each value in a result changes where the call's numbers change by `step` of
    themselves: in the reference, in another implementation (`own`), and there without any change
    (`same`); by place, None where that cannot be told. `relative` is what may be off in a call of
    such dtypes."""

    step: float
    relative: float
    reference: Sequence[Any]
    own: Sequence[Any]
    same: Sequence[Any]


def relative_error(tensor: Any) -> float:
    """What elements of its dtype may be off by, 0 for integers."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype == "float32" and tensor.is_cuda:
        return _TF32[1]
    return _RELATIVE.get(dtype, 0.25 if dtype.startswith("float8") else 0.0)


def coarsest(values: Any, device: str) -> tuple[float, float] | None:
    """The step between numbers of the coarsest dtype of at least 16 bits that a call meets, and
    what may be off; None where it meets none."""
    torch = sys.modules["torch"]
    dtypes = {(one.dtype, one.is_cuda) for one in flattened(values) if is_tensor(one)}
    if torch.is_autocast_enabled(device):
        dtypes.add((torch.get_autocast_dtype(device), False))
    found = []
    for dtype, on_gpu in dtypes:
        name = str(dtype).removeprefix("torch.")
        if name == "float32" and on_gpu:
            found.append(_TF32)
        elif name in _RELATIVE:
            found.append((torch.finfo(dtype).eps, _RELATIVE[name]))
    return max(found, default=None)


class Nudge:
    """Copies of what it is called with, as if every number had been rounded once more."""

    def __init__(self, step: float, turn: int) -> None:
        self._step, self._turn = step, turn
        self._copies: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            parts = [self(one) for one in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if not (is_tensor(value) or type(value).__module__ == "numpy"):
            return value
        if id(value) not in self._copies:
            self._copies[id(value)] = self._copy(value)
        return self._copies[id(value)]

    def _copy(self, array: Any) -> Any:
        copy = copied(array)
        if not is_tensor(array) or str(array.dtype).removeprefix("torch.") not in _RELATIVE:
            return copy
        torch = sys.modules["torch"]
        if self._turn == 0:
            copy.mul_(1 + self._step)
        else:
            chance = seeded(1000 * self._turn + len(self._copies), array.device)
            up = torch.rand(array.shape, generator=chance, device=array.device) < 0.5
            copy.mul_(torch.where(up, 1 + self._step, 1 - self._step).to(copy.dtype))
        return copy.requires_grad_(array.requires_grad)


def seeded(seed: int, device: Any) -> Any:
    """A generator of its own: the caller's random numbers are not touched."""
    return sys.modules["torch"].Generator(device=device).manual_seed(seed)


def widest(changes: Sequence[Any] | None, one: Any, two: Any) -> list[Any]:
    """The larger of `changes` and of the differences between two results, by place."""
    values, others = list(flattened(one)), list(flattened(two))
    before = [None] * len(values) if changes is None else changes
    return [_wider(*each) for each in zip(before, values, others, strict=True)]


def _wider(before: Any, one: Any, two: Any) -> Any:
    if not (is_tensor(one) and is_tensor(two)) or one.shape != two.shape:
        return None
    if not (one.is_floating_point() or one.is_complex()):
        return None
    wide = one.dtype if one.dtype.itemsize >= 4 else sys.modules["torch"].float32
    change = (one.detach().to(wide) - two.detach().to(wide)).abs().nan_to_num(0.0, 0.0)
    return change if before is None else before.maximum(change)

"""A decorated kernel, as the command line finds it in a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whet.targets.triton.autotuner import Autotuner


@dataclass(frozen=True)
class Kernel:
    """`launcher[grid](…)` is a call of the kernel; `tuner` is the `whet.autotune` inside it.

    `stock` says that its file has `triton.autotune`. `where` and `inputs_from` are what was typed
    for the kernel and for its `--inputs`, to be repeated in advice.
    """

    launcher: Any
    tuner: Autotuner
    stock: bool = False
    where: str = ""
    inputs_from: str = ""

    @property
    def name(self) -> str:
        return str(self.tuner.base_fn.__name__)


def kernel_of(value: Any) -> Kernel | None:
    """The kernel that a decorated object is, also where `triton.heuristics` is on the outside."""
    tuner = value
    while not isinstance(tuner, Autotuner):
        tuner = getattr(tuner, "fn", None)
        if tuner is None:
            return None
    return Kernel(value, tuner)

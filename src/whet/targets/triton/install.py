"""Makes whet tune everything that goes through Triton's `Autotuner`, or through Inductor's, and
undoes it.

These names can be imported where there is no Triton.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import TracebackType
from typing import Literal

from whet.engine.settings import resolve_settings
from whet.targets.triton.live import InstalledKernel


class Installed:
    """What `install` returns. As a context it is undone at the end, where it was not there
    before."""

    def __init__(self, before: bool) -> None:
        self._before = before

    def __enter__(self) -> Installed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._before:
            uninstall()


_installed = False


def install(*, jit: bool = False, inductor: bool | Literal["all"] | None = None) -> Installed:
    """Makes whet tune every kernel of this process that goes through Triton's `Autotuner` or a
    subclass of it: kernels that exist already, and kernels that are created later. With `jit`,
    kernels that nobody tunes are launched directly, too: without Triton's binder, where that is the
    same launch. With `inductor` (by default as the setting says), whet also answers what
    `torch.compile` measures to choose between a library's kernels and its templates; with
    `inductor="all"`, also the block sizes of the kernels that it writes.

    `with whet.install():` undoes it at the end.
    """
    global _installed
    before, _installed = _installed, True
    if inductor is None:
        inductor = resolve_settings().settings.inductor
    if inductor:
        from whet.targets.inductor.taking import take_inductor

        take_inductor(kernels=inductor == "all")
    # For models on a CPU alone, torch's compiler needs no Triton.
    if not inductor or jit or find_spec("triton") is not None:
        from whet.targets.triton.adoption import take_all

        take_all(jit)
    return Installed(before)


def uninstall() -> None:
    """Restores Triton's decorator, and the class, attributes and cache of kernels that were taken
    over; tuned configs stay in their cache. Kernels decorated in the meantime stay with whet, plain
    kernels are launched by Triton again, and Inductor measures by itself."""
    global _installed
    _installed = False
    if (taking := sys.modules.get("whet.targets.inductor.taking")) is not None:
        taking.give_inductor_back()
    if find_spec("triton") is not None:
        from whet.targets.triton.adoption import give_all_back

        give_all_back()


def installed() -> tuple[InstalledKernel, ...]:
    """Lists every live autotuner of this process, and with `install(jit=True)` every plain kernel
    that was launched since, sorted by file and line; and with `inductor=True` each kind of
    operation that torch's compiler asked about."""
    found: tuple[InstalledKernel, ...] = ()
    if find_spec("triton") is not None:
        from whet.targets.triton.adoption import all_kernels

        found = all_kernels()
    taking = sys.modules.get("whet.targets.inductor.taking")
    return found if taking is None else (*found, *taking.operations())

"""Makes whet tune everything that goes through Triton's `Autotuner`, and undoes it.

These names can be imported where there is no Triton.
"""

from __future__ import annotations

from whet.targets.triton.live import InstalledKernel


def install(*, jit: bool = False) -> None:
    """Makes whet tune every kernel of this process that goes through Triton's `Autotuner` or a
    subclass of it: kernels that exist already, and kernels that are created later. With `jit`,
    kernels that nobody tunes are launched directly, too: without Triton's binder, where that is the
    same launch."""
    from whet.targets.triton.adoption import take_all

    take_all(jit)


def uninstall() -> None:
    """Restores Triton's decorator, and the class, attributes and cache of kernels that were taken
    over; tuned configs stay in their cache. Kernels decorated in the meantime stay with whet, and
    plain kernels are launched by Triton again."""
    from whet.targets.triton.adoption import give_all_back

    give_all_back()


def installed() -> tuple[InstalledKernel, ...]:
    """Lists every live autotuner of this process, and with `install(jit=True)` every plain kernel
    that was launched since, sorted by file and line."""
    from whet.targets.triton.adoption import all_kernels

    return all_kernels()

"""Kernels that a command can know of: those of the store, and those of a program."""

from __future__ import annotations

from typing import Any

from whet.core.errors import UsageError
from whet.engine.policy.checking import KnownKernel


def kernels_in_store(store: str | None) -> list[KnownKernel]:
    """None where there is no store yet."""
    from whet.cli.arguments.reading import NothingKnownError, open_known
    from whet.engine.policy.checking import stored_kernels

    try:
        with open_known(store) as opened:
            workloads = [known.workload for known in opened.workloads()]
            return stored_kernels(workloads, opened.missed(tuned=True))
    except NothingKnownError:
        return []


def live_tuners(file: str | None, module: str | None) -> list[Any]:
    """Every autotuner there is once the file or the module is imported, with whet behind it."""
    import importlib
    import os
    import sys
    from pathlib import Path

    from whet.cli.arguments.locate import file_of
    from whet.targets.files import guarded, load_module

    try:
        from whet.targets.triton.adoption import live
        from whet.targets.triton.autotuner import Autotuner
        from whet.targets.triton.install import install
    except ImportError as error:
        raise UsageError(f"cannot import Triton ({error}); install it, or name no file") from None
    install()
    loaded = None
    if file is not None:
        loaded = load_module(file_of(file))
    if module is not None:
        sys.path.insert(0, os.getcwd())
        loaded = guarded(Path(module), lambda: importlib.import_module(module))
    found = [one for one in live() if isinstance(one, Autotuner)]
    del loaded  # held until now: a program's kernels go with it
    return found

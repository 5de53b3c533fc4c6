"""What WHET_JIT and WHET_PRELOAD ask for, begun when Triton is first imported.

Imported by `import whet` where one of the two is set, so nothing heavy is imported here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_MODULE = "triton.runtime.jit"
_MODES = ("record", "warn", "error")


def start() -> None:
    """Now, where Triton is there already; else as soon as it is."""
    if _MODULE in sys.modules:
        _begin()
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())


class _AfterImport(MetaPathFinder):
    """Has Triton imported as ever, and then begins."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _begin()

            loader.exec_module = exec_module
        return spec


def _begin() -> None:
    """Only hooks: Triton is still being imported, and its driver must not be asked yet."""
    from whet.targets.triton.jit.environment import begin

    begin(os.environ.get("WHET_JIT", ""), os.environ.get("WHET_PRELOAD", ""))

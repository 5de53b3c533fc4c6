"""What the variables ask for: WHET_JIT=record|warn|error, WHET_PRELOAD=FILE[:FILE…]. Begun when
Triton is first imported.

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
_MODES = ("", "off", "record", "warn", "error")


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
    """Only hooks: Triton is still being imported, and its driver must not be asked yet. Never
    raises, for the same reason."""
    from whet.core.errors import WhetError
    from whet.engine.log import say_once

    mode, bundles = os.environ.get("WHET_JIT", ""), os.environ.get("WHET_PRELOAD", "")
    try:
        if mode not in _MODES:
            say_once(f"WHET_JIT={mode} is not valid; use record, warn, error or off")
        if mode == "record":
            _record()
        if mode in ("warn", "error"):
            from whet.targets.triton.jit.sealing import remember

            remember()
        if bundles:
            from whet.targets.triton.jit.preloading import preload_at_first_call

            preload_at_first_call(bundles.split(os.pathsep))
    except Exception as error:
        said = str(error) if isinstance(error, WhetError) else f"{type(error).__name__}: {error}"
        say_once(f"WHET_JIT and WHET_PRELOAD have no effect: {said}")


def _record() -> None:
    from whet.engine.settings import resolve_settings
    from whet.targets.triton.jit.recording import start_recording
    from whet.targets.triton.jit.records import Records, watch_libraries

    records = Records.beside(resolve_settings().settings.store)
    watch_libraries(records)
    start_recording(records)

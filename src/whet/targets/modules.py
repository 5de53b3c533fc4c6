"""Modules by name: where the file of one is, without importing anything, and the module itself."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

# The packages that were imported by name since that was last cleared.
_by_name: set[str] = set()


def file_of_module(name: str) -> Path | None:
    """Where `import` would find it, from the working directory as well; None where it would not.
    Packages around it are not run."""
    top, *rest = name.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        return None
    _look_here_too()
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin and os.path.isfile(spec.origin) else None
    for folder in spec.submodule_search_locations or ():
        inside = Path(folder, *rest)
        for file in (inside.with_suffix(".py"), inside / "__init__.py"):
            if os.path.isfile(file):
                return file
    return None


def import_by_name(name: str) -> ModuleType:
    """Once for a process, as a program does; whatever it raises is its own."""
    _look_here_too()
    importlib.invalidate_caches()
    _by_name.add(name.partition(".")[0])
    return importlib.import_module(name)


def _look_here_too() -> None:
    """A command's own path begins with the folder of the command."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


@contextmanager
def imported_anew() -> Iterator[None]:
    """What is imported by name within goes afterwards: what a package finds may be another device
    the next time."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in _by_name:
                del sys.modules[name]
        _by_name.clear()

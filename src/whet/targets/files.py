"""A user's Python file, run as a module: by the command line, and by processes it starts."""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from whet.core.errors import UsageError, WhetError, no_triton
from whet.engine.policy.finding import stand_beside
from whet.targets.packages import import_from_package, package_of


def _module_name(path: Path) -> str:
    """The file's own name where `import` would find this very file by it, in any process.

    Otherwise a name that depends on nothing but the path, so that what was pickled under it can
    be found again.
    """
    if path.stem.isidentifier() and path.stem not in sys.modules:
        spec = importlib.util.find_spec(path.stem)
        if spec is not None and spec.origin is not None and Path(spec.origin) == path:
            return path.stem
    return f"whet_file_{hashlib.blake2b(str(path).encode(), digest_size=6).hexdigest()}"


def load_module(path: Path, enough: str | None = None) -> ModuleType:
    """Runs the file. Where it fails but has defined `enough`, that is a note on stderr."""
    real = path.resolve()
    package = package_of(real)
    if package is not None:
        imported: ModuleType = guarded(path, lambda: import_from_package(package))
        return imported
    stand_beside(real.parent)
    folder = str(real.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    name = _module_name(real)
    spec = importlib.util.spec_from_file_location(name, real)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    linecache.checkcache(str(real))
    loader = spec.loader
    try:
        guarded(path, lambda: loader.exec_module(module))
    except BaseException as error:
        if isinstance(error, UsageError) and enough is not None and hasattr(module, enough):
            print(
                f"whet: note: {error}; continuing, since '{enough}' was already defined",
                file=sys.stderr,
            )
            return module
        sys.modules.pop(name, None)
        raise
    return module


def guarded(path: Path, step: Callable[[], Any]) -> Any:
    """Runs code of the user's; what it raises becomes one line that points into the file."""
    try:
        return step()
    except KeyboardInterrupt:
        raise
    except SyntaxError as error:
        where = Path(error.filename) if error.filename else path
        where = path if where == path.resolve() else where
        raise UsageError(f"{where}:{error.lineno}: {type(error).__name__}: {error.msg}") from error
    except WhetError as error:
        told = UsageError(f"{_place(path, error)}: {error}")
        for note in getattr(error, "__notes__", ()):
            told.add_note(note)
        raise told from error
    except BaseException as error:
        text = no_triton(error) or traceback.format_exception_only(error)[-1].strip()
        raise UsageError(f"{_place(path, error)}: {text}") from error


def _place(path: Path, error: BaseException) -> str:
    """The last line of the user's file that was being run."""
    real = str(path.resolve())
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == real
    ]
    return f"{path}:{lines[-1]}" if lines else str(path)

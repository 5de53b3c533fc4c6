"""Python files of the user's, run as modules by the command line and by processes it starts; where
the file of a module is; and which files may be run that only a record names."""

from __future__ import annotations

import ast
import grp
import hashlib
import importlib
import importlib.util
import linecache
import os
import pwd
import stat
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from whet.core.errors import UsageError, WhetError, no_triton
from whet.engine.policy.finding import stand_beside

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


@dataclass(frozen=True)
class Packaged:
    """`module` is the file's full name where `root` is searched for packages."""

    root: Path
    module: str


def package_of(path: Path) -> Packaged | None:
    """The package of a file that cannot be run without it; None for a file that can."""
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    parts = path.relative_to(root).with_suffix("").parts
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        return None
    return Packaged(root, ".".join(parts)) if _imports_from(path, parts[0]) else None


def import_from_package(packaged: Packaged) -> ModuleType:
    """Anew each time, since what a package finds may be another device by now. Where the package
    cannot be imported here, its file may still do with those parts that it imports itself."""
    if str(packaged.root) not in sys.path:
        sys.path.insert(0, str(packaged.root))
    _forget(packaged)
    try:
        return importlib.import_module(packaged.module)
    except Exception as error:
        _forget(packaged)
        _bare_parents(packaged)
        try:
            module = importlib.import_module(packaged.module)
        except Exception:
            _forget(packaged)
            raise error from None
        top = packaged.module.partition(".")[0]
        said = f"{type(error).__name__}: {error}"
        print(f"whet: note: loaded without the rest of package '{top}' ({said})", file=sys.stderr)
        return module


def _forget(packaged: Packaged) -> None:
    top = packaged.module.partition(".")[0]
    for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
        del sys.modules[name]


def _bare_parents(packaged: Packaged) -> None:
    """The packages around the file, as if the `__init__.py` of each were empty."""
    *parents, _ = packaged.module.split(".")
    for depth in range(1, len(parents) + 1):
        name = ".".join(parents[:depth])
        module = ModuleType(name)
        module.__path__ = [str(packaged.root.joinpath(*parents[:depth]))]
        sys.modules[name] = module


def _imports_from(path: Path, package: str) -> bool:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False  # it is said when the file is run
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level or (node.module or "").partition(".")[0] == package:
                return True
        elif isinstance(node, ast.Import) and any(
            alias.name.partition(".")[0] == package for alias in node.names
        ):
            return True
    return False


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


class NotAllowedError(UsageError):
    """A file that a record names and that is not run for it; the message says why."""


class RecordedFiles:
    """`roots` are the trusted folders: the working directory and what `import` searches where none
    is given. `told` hears of each file before it is first run."""

    def __init__(
        self, roots: Sequence[str] = (), told: Callable[[str], None] = lambda line: None
    ) -> None:
        # Now: what is run may change where `import` searches.
        self._roots = [os.path.realpath(one) for one in roots or (os.getcwd(), *sys.path)]
        self._named, self._told = bool(roots), told
        self._known: set[str] = set()

    def allow(self, file: str | Path, recorded: str) -> Path:
        """The file, without links; `recorded` says who named it. Raises `NotAllowedError`."""
        real = os.path.realpath(file)
        why = self._why_not(real)
        if why:
            raise NotAllowedError(f"{file} was not run: a record names it ({recorded}), and {why}")
        if real not in self._known:
            self._known.add(real)
            self._told(f"running {real}, recorded by {recorded}")
        return Path(real)

    def _why_not(self, real: str) -> str:
        root = max((one for one in self._roots if _is_below(real, one)), key=len, default="")
        if not root:
            among = "no --root" if self._named else "neither this folder nor one of Python's path"
            return f"{among} holds it; add --root FOLDER"
        if not os.path.isfile(real):
            return "it is no file"
        return next(filter(None, (_anothers(one) for one in _from(real, root))), "")


def _is_below(file: str, folder: str) -> bool:
    return file.startswith(os.path.join(folder, ""))


def _from(file: str, root: str) -> list[str]:
    """It and the folders around it: whoever may write there may replace it. The root itself is
    what the user trusts."""
    found = [file]
    while (folder := os.path.dirname(found[-1])) != root:
        found.append(folder)
    return found


def _anothers(path: str) -> str:
    about = os.stat(path)
    if about.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to {_user(about.st_uid)}"
    if about.st_mode & (stat.S_IWOTH | (0 if _is_own_group(about.st_gid) else stat.S_IWGRP)):
        return f"others may write to {path} (chmod go-w)"
    return ""


def _is_own_group(gid: int) -> bool:
    """Of this user alone, as most systems make one for each: with it files are made 0664."""
    try:
        group, name = grp.getgrgid(gid), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"

"""Files that belong to a package: those that import from it are run as a part of it."""

from __future__ import annotations

import ast
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


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

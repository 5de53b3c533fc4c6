"""Which policy file holds for this process: `WHET_POLICY`, else `whet.toml` beside the program,
else in the working directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.engine.policy.rules import Policy

VARIABLE = "WHET_POLICY"
FILE = "whet.toml"

# The folder of the file that a command was given, which is then the program.
_given: list[str] = []


def stand_beside(folder: Path) -> None:
    """For commands that load a user's file: `__main__` is then whet's own."""
    _given[:] = [str(folder)]


def policy_path(environ: Mapping[str, str] = os.environ) -> Path | None:
    """None where there is no file, or `WHET_POLICY=none` says so."""
    named = environ.get(VARIABLE, "").strip()
    if named:
        return None if named.lower() == "none" else Path(named).expanduser()
    for folder in (*_given, _program_folder(), "."):
        path = None if folder is None else os.path.abspath(os.path.join(folder, FILE))
        if path is not None and os.path.lexists(path):
            return Path(path)
    return None


def current_policy() -> Policy | None:
    """Read once for as long as the file stays the same. Raises `SettingsError`."""
    path = policy_path()
    if path is None:
        return None
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return _read.__wrapped__(path)  # which says what is wrong
    return _read(path, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, *_: int) -> Policy:
    from whet.engine.policy.reading import read_policy  # most programs have no such file

    return read_policy(path)


def _program_folder() -> str | None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.dirname(os.path.abspath(file)) if isinstance(file, str) else None

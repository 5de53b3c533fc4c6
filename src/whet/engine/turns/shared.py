"""Locks that all users of a machine share: of its GPUs, where a store has no folder of its own.

Anybody may have made the folder, or put anything into it: no link is followed, and nothing is ever
written into a lock's file.
"""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

# Not the temporary folder of the environment, which may be another one for each user.
_FOLDER = Path("/tmp/whet-locks")

_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_said: set[str] = set()


def shared_locks() -> Path:
    return _FOLDER


def opened_for_all(path: Path) -> int | None:
    """A file that every user can lock, made where there is none. Where it cannot be had, that is
    said once, and it is None."""
    try:
        folder = _folder(path.parent)
        try:
            return _file(path.name, folder)
        finally:
            os.close(folder)
    except OSError as error:
        text = (
            f"cannot lock {path} ({error.strerror or error}), so other processes may measure on "
            f"the same GPU at once; have its owner or root remove {path.parent}"
        )
        if text not in _said:
            _said.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None


def _folder(path: Path) -> int:
    try:
        os.mkdir(path)
        made = True
    except FileExistsError:
        made = False
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
    if made:
        os.fchmod(folder, 0o1777)  # mkdir's own mode is cut by the umask
    return folder


def _file(name: str, folder: int) -> int:
    """Linux refuses O_CREAT for another user's file in such a folder, so it is opened first."""
    try:
        found = os.open(name, os.O_RDWR | _SAFELY, dir_fd=folder)
    except FileNotFoundError:
        try:
            made = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY, 0o666, dir_fd=folder)
            os.fchmod(made, 0o666)
            return made
        except FileExistsError:  # by another process, just now
            found = os.open(name, os.O_RDWR | _SAFELY, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(0, "it is no file")
    return found

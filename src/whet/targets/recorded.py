"""Files that a record names. Stores, bundles and lock files may be anybody's, so a record chooses
only among files that the user could have named: their own, below folders that they trust."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from whet.core.errors import UsageError


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

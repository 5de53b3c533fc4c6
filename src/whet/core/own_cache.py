"""Files in the user's cache folder: what can be made again, and is believed only where nobody else
could have written it.

A kernel's first call waits for this module, so it imports little.
"""

from __future__ import annotations

import os
import stat


class UntrustedFileError(Exception):
    """It is no plain file of this user's own, or too large to be one of ours."""


def cache_folder(name: str) -> str:
    given = os.environ.get("XDG_CACHE_HOME", "")
    folder = given if os.path.isabs(given) else os.path.expanduser("~/.cache")
    return os.path.join(folder, "whet", name)


def read_own(path: str, most_bytes: int) -> bytes:
    """A plain file of this user that nobody else may write to. Raises `OSError`."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    with open(descriptor, "rb", buffering=0) as opened:
        about = os.fstat(descriptor)
        own = about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not own or not stat.S_ISREG(about.st_mode) or about.st_size > most_bytes:
            raise UntrustedFileError(path)
        return opened.read()

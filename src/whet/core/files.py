"""Files that are there as a whole or not at all, and those of the user's cache folder: what can be
made again, and is believed only where nobody else could have written it.

A kernel's first call waits for this module, so it imports little.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_whole(target: Path, data: bytes) -> None:
    """Puts the file in place of what is there; a reader sees one of both. An `OSError` where it
    cannot be written leaves what was there, and nothing else."""
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".whet-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


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

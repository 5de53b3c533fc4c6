"""Who writes to a shared store: every trial, run and miss names its writer."""

from __future__ import annotations

import getpass
import os
import platform
from dataclasses import dataclass

from whet._version import __version__


@dataclass(frozen=True)
class Writer:
    """`role` is the database's word; the others are what the client said of itself."""

    role: str
    os_user: str
    host: str
    whet: str

    def __str__(self) -> str:
        return f"{self.os_user}@{self.host} as {self.role}, whet {self.whet}"


@dataclass(frozen=True)
class Contribution:
    """How many trials a writer has brought; `last` is when the newest was made."""

    writer: Writer
    trials: int
    last: float


def this_writer() -> tuple[str, str, str]:
    """The user, host and version of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return user, platform.node(), __version__

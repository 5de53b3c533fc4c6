"""Who writes to a shared store: every trial, run and miss names its writer."""

from __future__ import annotations

from dataclasses import dataclass

from whet._version import __version__
from whet.core.process import user_and_host


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
    return *user_and_host(), __version__

"""What one command line did, for tests of commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def widest(self) -> int:
        """The folder that the test runs in counts for nothing: its name may be of any length."""
        text = (self.out + self.err).replace(str(Path.cwd()), "")
        return max(map(len, text.splitlines()), default=0)

    @property
    def said(self) -> str:
        """What went to stdout, wherever its lines end."""
        return " ".join(self.out.split())


Whet = Callable[..., Ran]


def refused(ran: Ran) -> str:
    """What a command said that was given something wrong."""
    assert ran.code == 2, ran
    return ran.err


def one_line(ran: Ran) -> str:
    """Likewise, and nothing more than that."""
    assert (ran.out, ran.err.count("\n")) == ("", 1), ran
    return refused(ran)


@contextmanager
def own_modules(*names: str) -> Iterator[None]:
    """Modules of these names, and of files, are imported anew by each test; Python's path stays."""
    before, path = set(sys.modules), list(sys.path)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            if name.startswith(("whet_file_", *names)):
                del sys.modules[name]
        sys.path[:] = path

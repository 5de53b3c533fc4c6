"""Which process this is: a program's own, or one that whet has forked to compile or measure."""

from __future__ import annotations

import os

from whet.workers.reaper import MARKER


class Origin:
    """The process in which it was made, to be compared with the one that asks."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._worker = os.environ.get(MARKER)

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._process

    @property
    def is_behind_a_worker(self) -> bool:
        """A fork of whet's works for the process in which this was made; any other fork, such as a
        server's engine or one of its workers, works for itself."""
        return not self.is_here and os.environ.get(MARKER) != self._worker

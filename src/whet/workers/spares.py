"""Processes that wait to be needed, with what takes long to import imported."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from whet.workers import process, reaper
from whet.workers.process import Worker
from whet.workers.supervisor import Supervisor

KEPT = 3

# What a spare sends before it does what it is taken for: that it is there, how its imports went,
# and how its surroundings were brought up to date.
SPARE_FRAMES = 3

# A process of its own keeps these, whatever the process it works for has.
_OWN = (reaper.MARKER, "TMPDIR")


@dataclass(frozen=True)
class _Preload:
    """Called in the child as if it made a session's object. What cannot be imported is left to
    whoever needs it, and to their error."""

    modules: tuple[str, ...]

    def __call__(self) -> None:
        for name in self.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


@dataclass(frozen=True)
class _Surroundings:
    """Those of the process that takes a spare, which may have changed since it was started."""

    paths: tuple[str, ...]
    variables: dict[str, str]

    def __call__(self) -> None:
        sys.path[:] = self.paths
        for name in os.environ.keys() - self.variables.keys() - {*_OWN}:
            del os.environ[name]
        os.environ.update(self.variables)


class Spares:
    """Only the supervisor's thread calls these."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._workers: list[Worker] = []

    def take(self, supervisor: Supervisor) -> Worker | None:
        """The oldest that is alive; it may still be importing."""
        while self._workers:
            worker = self._workers.pop(0)
            if not worker.exited():
                variables = {n: v for n, v in os.environ.items() if n not in _OWN}
                paths = tuple(os.path.abspath(path) for path in sys.path)
                _send(worker, _Surroundings(paths, variables))
                return worker
            process.retire(supervisor, [worker])
        return None

    def restock(self, supervisor: Supervisor) -> None:
        while len(self._workers) < KEPT:
            self._workers.append(_started(supervisor, _Preload(self._modules)))

    def close(self, supervisor: Supervisor) -> None:
        workers, self._workers = self._workers, []
        process.retire(supervisor, workers)


def _started(supervisor: Supervisor, preload: _Preload) -> Worker:
    worker = process.spawn(supervisor, for_session=True)
    _send(worker, preload)
    return worker


def _send(worker: Worker, make: _Preload | _Surroundings) -> None:
    work = pickle.dumps((None, (make,)), protocol=5)
    worker.channel.send(pickle.dumps((None, work), protocol=5))

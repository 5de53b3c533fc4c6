"""Processes that wait to be needed, with what takes long to import imported."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from whet.workers import guardian, process
from whet.workers.keeper import Keeper, close_at_exit, lease
from whet.workers.process import Worker

KEPT = 2

# What a spare sends before it does what it is taken for: that it is there, how its imports went,
# and how its surroundings were brought up to date.
SPARE_FRAMES = 3

# A process of its own keeps these, whatever the process it works for has.
_OWN = (guardian.MARKER, "TMPDIR")

_leaving: threading.Timer | None = None


@dataclass(frozen=True)
class _Preload:
    """Called in the child as if it made a session's object. What cannot be imported is left to
    whoever needs it, and to their error. A process that nobody takes ends after `patience_s`."""

    modules: tuple[str, ...]
    patience_s: float | None = None

    def __call__(self) -> None:
        global _leaving
        if self.patience_s is not None:
            _leaving = threading.Timer(self.patience_s, os._exit, (0,))
            _leaving.daemon = True
            _leaving.start()
        for name in self.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


@dataclass(frozen=True)
class _Surroundings:
    """Those of the process that takes a spare, which may have changed since it was started."""

    paths: tuple[str, ...]
    variables: dict[str, str]

    def __call__(self) -> None:
        if _leaving is not None:
            _leaving.cancel()
        sys.path[:] = self.paths
        for name in os.environ.keys() - self.variables.keys() - {*_OWN}:
            del os.environ[name]
        os.environ.update(self.variables)


class Spares:
    """Only the keeper's thread calls these. Without modules to import there is nothing to gain,
    and no spare."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._modules = tuple(modules)
        self._workers: list[Worker] = []

    def take(self, keeper: Keeper) -> Worker | None:
        """The oldest that is alive; it may still be importing."""
        ahead = _stood_by(self._modules)
        if ahead is not None:
            self._workers.append(ahead)
        while self._workers:
            worker = self._workers.pop(0)
            if not worker.exited():
                variables = {n: v for n, v in os.environ.items() if n not in _OWN}
                paths = tuple(os.path.abspath(path) for path in sys.path)
                _send(worker, _Surroundings(paths, variables))
                return worker
            process.retire(keeper, [worker])
        return None

    def restock(self, keeper: Keeper) -> None:
        while self._modules and len(self._workers) < KEPT:
            self._workers.append(_started(keeper, _Preload(self._modules)))

    def close(self, keeper: Keeper) -> None:
        workers, self._workers = self._workers, []
        process.retire(keeper, workers)


class _Standby:
    """One process, started long before a session that will take it, if one does."""

    def __init__(self, modules: tuple[str, ...], patience_s: float) -> None:
        self.modules = modules
        self.worker: Worker | None = None
        self._keeper = lease()
        self._closed = False
        close_at_exit(self)
        self._keeper.post(lambda: self._start(patience_s))

    @property
    def foreign(self) -> bool:
        return self._keeper.foreign

    @property
    def waits(self) -> bool:
        """Whether there is a process, or is about to be one."""
        return not self.foreign and (self.worker is None or not self.worker.exited())

    def _start(self, patience_s: float) -> None:
        if not self._closed:
            self.worker = _started(self._keeper, _Preload(self.modules, patience_s))

    def given(self) -> Worker | None:
        """By the keeper's thread; from then on somebody else's to end."""
        worker, self.worker = self.worker, None
        self._keeper.post(self.close)
        return worker

    def close(self) -> None:
        if not self._closed and not self.foreign:
            self._closed = True
            self._keeper.run(self._end)
            self._keeper.release()

    def _end(self) -> None:
        if self.worker is not None:
            process.retire(self._keeper, [self.worker])
            self.worker = None


_standby: _Standby | None = None


def stand_by(modules: Sequence[str], patience_s: float = 300.0) -> None:
    """Starts a process for the next session that preloads these modules, unless one waits already.
    Not in a worker. A process that nobody takes ends by itself."""
    global _standby
    if guardian.MARKER in os.environ or (_standby is not None and _standby.waits):
        return
    if _standby is not None:
        _standby.close()
    _standby = _Standby(tuple(modules), patience_s)


def _stood_by(modules: tuple[str, ...]) -> Worker | None:
    global _standby
    found = _standby
    if found is None or found.foreign or found.modules != modules or found.worker is None:
        return None
    _standby = None
    return found.given()


def _started(keeper: Keeper, preload: _Preload) -> Worker:
    worker = process.spawn(keeper, for_session=True)
    _send(worker, preload)
    return worker


def _send(worker: Worker, make: _Preload | _Surroundings) -> None:
    work = pickle.dumps((None, (make,)), protocol=5)
    worker.channel.send(pickle.dumps((None, work), protocol=5))

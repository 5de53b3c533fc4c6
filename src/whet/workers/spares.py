"""Processes that wait for the death of another, with what takes long to import imported."""

from __future__ import annotations

import contextlib
import importlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from whet.workers import process
from whet.workers.keeper import Keeper
from whet.workers.process import Worker

KEPT = 2

# What a spare sends of its own accord: that it is there, and how its imports went.
SPARE_FRAMES = 2


@dataclass(frozen=True)
class _Preload:
    """Called in the child as if it made a session's object. What cannot be imported is left to
    whoever needs it, and to their error."""

    modules: tuple[str, ...]

    def __call__(self) -> None:
        for name in self.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


class Spares:
    """Only the keeper's thread calls these. Without modules to import there is nothing to gain,
    and no spare."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._modules = tuple(modules)
        self._workers: list[Worker] = []

    def take(self, keeper: Keeper) -> Worker | None:
        """The oldest that is alive; it may still be importing."""
        while self._workers:
            worker = self._workers.pop(0)
            if not worker.exited():
                return worker
            process.retire(keeper, [worker])
        return None

    def restock(self, keeper: Keeper) -> None:
        while self._modules and len(self._workers) < KEPT:
            worker = process.spawn(keeper, for_session=True)
            work = pickle.dumps((None, (_Preload(self._modules),)), protocol=5)
            worker.channel.send(pickle.dumps((None, work), protocol=5))
            self._workers.append(worker)

    def close(self, keeper: Keeper) -> None:
        workers, self._workers = self._workers, []
        process.retire(keeper, workers)

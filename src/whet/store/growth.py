"""Whether a store was written to, and what was appended: for whoever watches one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TypeAlias

from whet.store.overlay import OverlayStore
from whet.store.protocol import StoreReader
from whet.store.scanning import reading
from whet.store.sqlite import SqliteStore
from whet.store.statements import LAST_TRIAL

FileState: TypeAlias = tuple[tuple[int, int] | None, ...]

_GROWN = """
SELECT w.id, count(*), max(t.n) FROM trials t JOIN workloads w ON w.n = t.workload
WHERE t.n > ? GROUP BY t.workload
"""
_TICK_NS = 50_000_000


class GrowthWatch:
    """Tells what was appended to a store since it was last asked, at next to no cost while nothing
    was: a file is looked at from outside."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._counts = {one.workload.id: one.trials for one in store.workloads()}
        self._file = Path(store.location) if _is_file(store) else None
        self._state = _written(store)
        self._settled = False
        self._last = self._last_trial()

    def changes(self) -> dict[str, int] | None:
        """By workload that grew, how many trials it has now; None where nothing has changed. Empty
        where it was not trials that changed."""
        state = _written(self._store)
        if state is not None and state == self._state and self._settled:
            return None
        changed, self._state = state != self._state, state
        self._settled = state is None or _is_settled(state)
        grown = self._grown()
        self._counts.update(grown)
        return grown or ({} if changed else None)

    def _grown(self) -> dict[str, int]:
        if self._file is None:
            now = {one.workload.id: one.trials for one in self._store.workloads()}
            return {id: n for id, n in now.items() if n != self._counts.get(id, 0)}
        with reading(self._file) as db:
            rows = db.execute(_GROWN, (self._last,)).fetchall()
        self._last = max((last for _, _, last in rows), default=self._last)
        return {id: self._counts.get(id, 0) + added for id, added, _ in rows}

    def _last_trial(self) -> int:
        if self._file is None:
            return 0
        with reading(self._file) as db:
            return int(db.execute(LAST_TRIAL).fetchone()[0])


def file_state(store: StoreReader) -> FileState | None:
    """The same as long as nobody has written to the store; None where that cannot be told."""
    state = _written(store)
    return state if state is not None and _is_settled(state) else None


def _written(store: StoreReader) -> FileState | None:
    """When its files were last written, and how long they are; None for what is not a file."""
    if not _is_file(store):
        return None
    return tuple(_state_of(f"{store.location}{suffix}") for suffix in ("", "-wal"))


def _is_file(store: StoreReader) -> bool:
    """A bundle under one's own store does not change."""
    own = store.layers[0] if isinstance(store, OverlayStore) else store
    return isinstance(own, SqliteStore)


def _is_settled(state: FileState) -> bool:
    """Clocks of file systems tick slowly: more may be written within the tick of the last write,
    and nothing would tell."""
    newest = max((one[0] for one in state if one is not None), default=0)
    return time.time_ns() - newest > _TICK_NS


def _state_of(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size

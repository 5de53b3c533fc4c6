"""The store behind a kernel's calls, kept open between them."""

from __future__ import annotations

import atexit
import contextlib
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whet.core.errors import WhetError
from whet.core.mode import Mode
from whet.engine.fallback.policy import open_for
from whet.engine.settings import Settings
from whet.store import MemoryStore, Store, open_store, over_bundle, store_path
from whet.targets.triton.warn import say_once


@dataclass
class _Kept:
    """A store that stays open, and how many use it now."""

    path: Path
    store: Store
    identity: tuple[int, int]
    writing: bool
    users: int = 0


_last: _Kept | None = None
_keeping = threading.Lock()


@contextlib.contextmanager
def opened(settings: Settings, mode: Mode = "tune") -> Iterator[Store]:
    """A store that cannot be used must not stop a kernel from running.

    It is opened for writing where the mode writes, and made only then.

    The last one on disk stays open, since closing it costs milliseconds and the next shape may
    come at once; it is opened anew where somebody has put another file in its place.
    """
    try:
        path = store_path(settings.store)
        writing = mode in ("tune", "record")
        known = path is not None and (writing or path.exists())
        kept = _taken(path.absolute(), writing) if path is not None and known else None
    except WhetError as error:
        say_once(f"results will not be saved: {error}")
        path, kept = None, None
    if kept is None:
        with MemoryStore() if path is None else open_for(mode, path) as store:
            yield _over_bundle(store, settings)
        return
    try:
        yield _over_bundle(kept.store, settings)
    finally:
        with _keeping:
            kept.users -= 1
            if kept is not _last and not kept.users:
                kept.store.close()


def _over_bundle(store: Store, settings: Settings) -> Store:
    """Nor must a bundle that cannot be used."""
    if settings.bundle is None:
        return store
    try:
        return over_bundle(store, settings.bundle)
    except WhetError as error:
        say_once(f"the bundle will not be used: {error}")
        return store


def _taken(path: Path, writing: bool) -> _Kept:
    global _last
    with _keeping:
        if (
            _last is None
            or _last.path != path
            or _identity(path) != _last.identity
            or (writing and not _last.writing)
        ):
            store = open_store(path, read_only=not writing)
            if _last is not None and not _last.users:
                _last.store.close()
            _last = _Kept(path, store, _identity(path), writing)
        _last.users += 1
        return _last


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _close_last() -> None:
    if _last is not None:
        with contextlib.suppress(Exception):
            _last.store.close()


atexit.register(_close_last)


def lock_folder(settings: Settings) -> Path:
    """Beside the store; for one in memory, where all processes of the host find it."""
    path = store_path(settings.store)
    return (Path(tempfile.gettempdir(), "whet") if path is None else path.parent) / "locks"

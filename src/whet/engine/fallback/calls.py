"""The store behind a kernel's calls, kept open between them."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whet.core.errors import WhetError
from whet.core.mode import Mode
from whet.engine.log import say_once
from whet.engine.settings import Settings
from whet.engine.turns import shared_locks
from whet.store import sqlite  # noqa: F401 - nearly every store is a file; a call need not load it
from whet.store.opening import (
    is_missing,
    lock_folder,
    open_if_there,
    open_store,
    over_bundle,
    store_place,
)

if TYPE_CHECKING:
    from whet.store import Store


@dataclass
class _Kept:
    """A store that stays open, and how many use it now."""

    place: str
    store: Store
    writing: bool
    users: int = 0


_last: _Kept | None = None
_keeping = threading.Lock()


@contextlib.contextmanager
def opened(settings: Settings, mode: Mode = "tune") -> Iterator[Store]:
    """A store that cannot be used must not stop a kernel from running.

    It is opened for writing where the mode writes, and made only then.

    The last one stays open, since closing it costs milliseconds and the next shape may come at
    once; it is opened anew where somebody has put another in its place.
    """
    try:
        place = store_place(settings.store)
        writing = mode in ("tune", "record")
        known = place != ":memory:" and (writing or not is_missing(settings.store))
        kept = _taken(place, writing, settings.store_wait_s) if known else None
    except WhetError as error:
        say_once(f"results will not be saved: {error}")
        place, kept = ":memory:", None
    if kept is None:
        with _opened_once(place, settings) as store:
            yield _over_bundle(store, settings)
        return
    try:
        yield _over_bundle(kept.store, settings)
    finally:
        with _keeping:
            kept.users -= 1
            if kept is not _last and not kept.users:
                kept.store.close()


def _opened_once(place: str, settings: Settings) -> Store:
    """In memory, or where there is none yet and the mode must not make one."""
    if place == ":memory:":
        return open_store(place)
    return open_if_there(place, wait_s=settings.store_wait_s)


# Bundles that packages bring along.
_shipped: dict[str, None] = {}


def ship(bundle: str | Path) -> None:
    """From now on, results of this bundle lie under the user's store and the user's own bundle."""
    _shipped[str(bundle)] = None


def _over_bundle(store: Store, settings: Settings) -> Store:
    """Nor must a bundle that cannot be used."""
    own = () if settings.bundle is None else (settings.bundle,)
    for bundle in (*own, *_shipped):
        try:
            store = over_bundle(store, bundle)
        except WhetError as error:
            say_once(f"the bundle will not be used: {error}")
    return store


def _taken(place: str, writing: bool, wait_s: float) -> _Kept:
    global _last
    with _keeping:
        if (
            _last is None
            or _last.place != place
            or _last.store.replaced
            or (writing and not _last.writing)
        ):
            store = open_store(place, read_only=not writing, wait_s=wait_s)
            if _last is not None and not _last.users:
                _last.store.close()
            _last = _Kept(place, store, writing)
        _last.users += 1
        return _last


def _close_last() -> None:
    if _last is not None:
        with contextlib.suppress(Exception):
            _last.store.close()


atexit.register(_close_last)


def timing_locks(settings: Settings) -> Path:
    """Beside the store; for one that is no file, where all users of the host find it."""
    return lock_folder(settings.store) or shared_locks()

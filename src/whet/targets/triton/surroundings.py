"""What a kernel call finds around it: a stream, a store, somebody to talk to."""

from __future__ import annotations

import atexit
import contextlib
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

from whet.core.errors import WhetError
from whet.engine.settings import Settings
from whet.store import MemoryStore, Store, open_store, store_path

_said: set[str] = set()


def say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def capturing() -> bool:
    """Whether the current stream records a CUDA graph, in which nothing can be timed."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


_kept: dict[Path, tuple[Store, tuple[int, int]]] = {}
_keeping = threading.Lock()


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Store]:
    """A store that cannot be used must not stop a kernel from running.

    One on disk stays open, since closing it costs milliseconds and the next shape may come at once;
    it is opened anew where somebody has put another file in its place.
    """
    try:
        path = store_path(settings.store)
        store = open_store(settings.store) if path is None else _kept_open(path)
    except WhetError as error:
        say_once(f"whet does not remember: {error}")
        store = MemoryStore()
    yield store


def _kept_open(path: Path) -> Store:
    path = path.absolute()
    with _keeping:
        store, identity = _kept.pop(path, (None, (0, 0)))
        if store is None or _identity(path) != identity:
            if store is not None:
                store.close()
            store = open_store(path)
        _kept[path] = store, _identity(path)
        return store


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _close_all() -> None:
    for store, _ in _kept.values():
        with contextlib.suppress(Exception):
            store.close()


atexit.register(_close_all)


def temporary() -> Path:
    return Path(tempfile.gettempdir()) / "whet"

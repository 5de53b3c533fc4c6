"""Which lock file holds for a kernel: its own, else the one in the settings."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from whet.core.mode import Mode
from whet.engine.settings import Settings, resolve_settings

if TYPE_CHECKING:
    from whet.engine.lockfile.entries import LockFile

NAME = "whet.lock"

# The modes that choose from a lock alone.
LOCKED_MODES: tuple[Mode, ...] = ("cached", "require")


@runtime_checkable
class OwnLock(Protocol):
    """A target whose author gave it a lock file with `lock=`."""

    @property
    def lock(self) -> str | None: ...


_read: dict[str, LockFile] = {}
_reading = Lock()


def locked_by(own: str | Path | None, mode: Mode, settings: Settings) -> LockFile | None:
    """None where no lock holds. A file is read once in the life of a process, so that all its
    choices come from the same one. Raises `LockError`."""
    named = settings.lock if own is None else str(own)
    if named is None or mode not in LOCKED_MODES:
        return None
    from whet.engine.lockfile.text import read_lock

    place = os.path.abspath(os.path.expanduser(named))
    with _reading:
        if place not in _read:
            _read[place] = read_lock(place)
        return _read[place]


def lock_holds(own: str | Path | None, mode: Mode) -> bool:
    """Quickly: some launches come here every time."""
    if mode not in LOCKED_MODES:
        return False
    names = ("WHET_LOCK", "WHET_CONFIG", "XDG_CONFIG_HOME", "HOME")
    return own is not None or _by_environment(*map(os.environ.get, names))


@lru_cache(maxsize=32)
def _by_environment(*_: str | None) -> bool:
    return resolve_settings().settings.lock is not None


def own_lock(target: object) -> str | None:
    """What `OwnLock` says; None for a target that is no such one. Every look-up asks."""
    return getattr(target, "lock", None)

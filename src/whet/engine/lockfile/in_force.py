"""Which lock file holds for a kernel, and the choices that this process has made so far."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from whet.core.mode import Mode
from whet.engine.log import warn
from whet.engine.settings import Settings, resolve_settings

if TYPE_CHECKING:
    from whet.core.config import Config
    from whet.core.run import Choice
    from whet.core.workload import Workload
    from whet.engine.lockfile.entries import LockFile


@dataclass(frozen=True)
class UnlockedChoice:
    """A choice that the lock file did not make, and why not."""

    workload: Workload
    config: Config
    reason: str

    def __str__(self) -> str:
        return f"{self.workload}: [{self.config}], {self.reason}"


@dataclass(frozen=True)
class InForce:
    """`name` is for people; `config` what is launched."""

    name: str
    config: Config


# By workload, the latest last. Few programs ask for them, so nothing is hashed before that.
_choices: dict[str, tuple[Workload, Config]] = {}
_unlocked: dict[str, UnlockedChoice] = {}


def in_force(workload: Workload, config: Config) -> None:
    """The latest choice for a workload is the one that counts."""
    _choices.pop(workload.id, None)
    _choices[workload.id] = workload, config


def not_locked(workload: Workload, choice: Choice, complain: Callable[[str], None] = warn) -> None:
    """Lists the choice; the first of each kernel is also said."""
    from whet.engine.lockfile.entries import entry_id

    new = all(one.workload.kernel != workload.kernel for one in _unlocked.values())
    _unlocked[entry_id(workload)] = UnlockedChoice(workload, choice.config, choice.reason)
    if new:
        complain(f"{workload}: {choice.reason} (whet.unlocked() lists all of these)")


def unlocked() -> tuple[UnlockedChoice, ...]:
    """Every choice of this process that its lock file did not make, with the reason."""
    return tuple(sorted(_unlocked.values(), key=str))


def choices_in_force() -> dict[str, InForce]:
    from whet.engine.lockfile.entries import entry_id  # few ask, and every program tunes

    return {
        entry_id(workload): InForce(str(workload), config)
        for workload, config in list(_choices.values())
    }


def own_digest() -> str:
    from whet.engine.lockfile.entries import choices_digest

    return choices_digest({id: one.config for id, one in choices_in_force().items()})


def forget_choices() -> None:
    """For tests, and for programs that begin anew."""
    _choices.clear()
    _unlocked.clear()


NAME = "whet.lock"

# The modes that choose from a lock alone.
LOCKED_MODES: tuple[Mode, ...] = ("cached", "require")


_read: dict[str, LockFile] = {}
_reading = Lock()


def locked_by(own: str | Path | None, mode: Mode, settings: Settings) -> LockFile | None:
    """None where no lock holds. A file is read once in the life of a process, so that all its
    choices come from the same one. Raises `LockError`."""
    named = settings.lock if own is None else str(own)
    if named is None or mode not in LOCKED_MODES:
        return None
    from whet.engine.lockfile.entries import read_lock

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

"""Which `Mode` holds for a call: the kernel's own, else the context's, else the settings'.

Why it is so: docs/decisions/modes.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache

from whet.core.mode import Mode, checked_mode
from whet.engine.settings import Settings, resolve_settings

# What the innermost `mode(…)` around a call says, None outside of any. Read on every launch.
asked: ContextVar[Mode | None] = ContextVar("whet_mode", default=None)


def mode(name: Mode) -> AbstractContextManager[Mode]:
    """Sets the mode: `with whet.mode("cached"): …`, or as a decorator of a function.

    It applies to the current thread or task, like a context variable, but not to threads started
    inside; `WHET_MODE` applies to the whole process.
    """
    return _within(checked_mode(name))


@contextmanager
def _within(name: Mode) -> Iterator[Mode]:
    token = asked.set(name)
    try:
        yield name
    finally:
        asked.reset(token)


def current_mode(own: Mode | None = None, settings: Settings | None = None) -> Mode:
    """`own` is what the kernel was given as `mode=`; without `settings` they are looked up."""
    found = own or asked.get()
    if found is not None:
        return found
    if settings is not None:
        return settings.mode
    names = ("WHET_MODE", "WHET_CONFIG", "XDG_CONFIG_HOME", "HOME")
    return _by_environment(*map(os.environ.get, names))


def mode_for(target: object, mode: Mode | None = None, settings: Settings | None = None) -> Mode:
    """`mode` where it is given, else the current one for a target of this kind."""
    if mode is not None:
        return checked_mode(mode)
    return current_mode(getattr(target, "mode", None), settings)


@lru_cache(maxsize=32)
def _by_environment(*_: str | None) -> Mode:
    """A file is read once for each place it may be in: calls that come here may be frequent."""
    return resolve_settings().settings.mode

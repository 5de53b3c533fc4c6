"""Our file descriptors, kept out of every process that is forked from this one.

A forked child that held another worker's connection, or the reaper's pipe, would keep it open
after its owner is gone, and nobody would notice the end. They are plain integers: an object that
owns a descriptor would close its number a second time in the child.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

_ours: set[int] = set()
_launching = threading.local()


def new_pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    _ours.update((reader, writer))
    return reader, writer


def new_connection() -> tuple[int, int]:
    near, far = socket.socketpair()
    ends = near.detach(), far.detach()
    _ours.update(ends)
    return ends


def watch_process(pid: int) -> int | None:
    """A descriptor that turns readable when the process ends, where there is such a thing."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
    _ours.add(descriptor)
    return descriptor


def close(descriptor: int | None) -> None:
    if descriptor is not None and descriptor in _ours:
        _ours.discard(descriptor)
        os.close(descriptor)


@contextlib.contextmanager
def handed_over(descriptor: int) -> Iterator[None]:
    """Inside, a fork by this thread gives its child the descriptor."""
    _launching.kept = descriptor
    try:
        yield
    finally:
        _launching.kept = None


def _close_in_child() -> None:
    kept = getattr(_launching, "kept", None)
    for descriptor in _ours:
        if descriptor != kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    _ours.clear()
    if kept is not None:
        _ours.add(kept)


os.register_at_fork(after_in_child=_close_in_child)

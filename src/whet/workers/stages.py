"""Where a task's time goes: `with stage("compile"): …`, anywhere below the task."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_totals: dict[str, float] = {}
_lock = threading.Lock()

# Seconds that stages inside the current one have taken so far, in a cell they add to.
_inner: ContextVar[list[float] | None] = ContextVar("whet_inner_stages", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Adds the time of the block to the stage `name` of the running task.

    An instant belongs to the innermost stage of its thread, so a stage inside another, or inside
    itself, is counted once. Outside a worker it costs a microsecond and does nothing.
    """
    outer, own = _inner.get(), [0.0]
    mark = _inner.set(own)
    began = time.perf_counter()
    try:
        yield
    finally:
        spent = time.perf_counter() - began
        _inner.reset(mark)
        if outer is not None:
            outer[0] += spent
        add(name, spent - own[0])


def add(name: str, seconds: float) -> None:
    """What was spent on a stage that no block can be put around."""
    with _lock:
        _totals[name] = _totals.get(name, 0.0) + seconds


def take() -> dict[str, float]:
    """The seconds by stage since it was last called."""
    with _lock:
        taken = dict(_totals)
        _totals.clear()
    return taken


def _start_over() -> None:
    global _lock
    _lock = threading.Lock()
    _totals.clear()
    _inner.set(None)


os.register_at_fork(after_in_child=_start_over)

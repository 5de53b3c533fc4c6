"""The executor that tunings of this process use, unless they are given one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.engine.executors.protocol import DeviceExecutor

# Not a context variable: torch runs backward passes, which launch kernels, in threads of its own.
_current: DeviceExecutor | None = None


def current_executor() -> DeviceExecutor | None:
    return _current


@contextmanager
def using(executor: DeviceExecutor | None) -> Iterator[None]:
    global _current
    before, _current = _current, executor
    try:
        yield
    finally:
        _current = before

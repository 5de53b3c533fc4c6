"""The executor that tunings of this process use, unless they are given one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.engine.executors.protocol import DeviceExecutor

# Not a context variable: torch runs backward passes, which launch kernels, in threads of its own.
executor: DeviceExecutor | None = None


@contextmanager
def using(given: DeviceExecutor | None) -> Iterator[None]:
    global executor
    before, executor = executor, given
    try:
        yield
    finally:
        executor = before

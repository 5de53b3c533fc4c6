"""Device memory that a tuning takes for itself: buffers to flush with, copies to put back."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from whet.measure.bench.failures import is_out_of_memory

T = TypeVar("T")


class NoRoom(MemoryError):
    """More than the tuning may take."""


class DeviceRoom:
    """At most `limit_bytes` in all; None is as much as there is.

    Where the device has no memory left, what is merely cached is given back, and it is tried once
    more. `empty` does that.
    """

    def __init__(
        self, limit_bytes: int | None = None, empty: Callable[[], None] | None = None
    ) -> None:
        self._left = limit_bytes
        self._empty = empty or empty_caches

    def limit(self, limit_bytes: int | None) -> None:
        """From now on, whatever was taken before."""
        self._left = limit_bytes

    def copy_of(self, tensor: Any) -> Any:
        return self.take(int(getattr(tensor, "nbytes", 0)), tensor.clone)

    def take(self, size: int, make: Callable[[], T]) -> T:
        """What `make` allocates, which is `size` bytes."""
        if self._left is not None and size > self._left:
            raise NoRoom(f"{size} bytes needed, but device_memory leaves {self._left}")
        try:
            made = make()
        except Exception as problem:
            if not is_out_of_memory(problem):
                raise
            problem.__traceback__ = None  # its frames may hold what is to be freed
            self._empty()
            made = make()
        if self._left is not None:
            self._left -= size
        return made


def empty_caches() -> None:
    """Gives back what torch has freed and keeps for later; nothing where nobody uses torch."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()

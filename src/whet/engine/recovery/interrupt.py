"""What ends a tuning early, with the best so far; and that Ctrl-C waits for a sentence to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from whet.core.errors import HostFailure, StoreError, WhetError
from whet.core.run import Result


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped tuning. `result` is the best so far, or None if nothing worked yet."""

    def __init__(self, result: Result | None) -> None:
        super().__init__("tuning was interrupted")
        self.result = result


class StoreLostError(StoreError):
    """The store can no longer be written, for example because the disk is full.

    `result` is the best so far, with every trial of the run, including those that were not stored;
    None if nothing worked yet. Results stored before are kept, and a later run continues from them.
    """

    def __init__(self, reason: str, result: Result | None) -> None:
        super().__init__(f"{reason}; stored results are kept, and the next run continues from them")
        self.result = result


class HostLostError(HostFailure):
    """The machine ran out of a resource that every config needs, such as disk space.

    `result` is the best so far, or None if nothing worked yet.
    """

    def __init__(self, reason: str, result: Result | None) -> None:
        super().__init__(reason)
        self.result = result


class DeviceLostError(WhetError):
    """A config made the device unusable in this process, such as by an illegal memory access.

    Results so far are stored. `result` is the best so far, or None if nothing worked yet.
    """

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class Shield:
    """While open, Ctrl-C raises KeyboardInterrupt at once, except inside `held()`.

    There it is kept until the block ends, so that a finished trial is always written. Where Python
    would not raise KeyboardInterrupt itself (another thread, a handler of the user's own), this
    changes nothing.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._pending = False
        self._previous: Any = None

    def __enter__(self) -> Shield:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    @contextmanager
    def held(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._pending and self._depth == 0:
                self._pending = False
                raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._pending = True
        else:
            raise KeyboardInterrupt

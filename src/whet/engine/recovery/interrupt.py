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
    """Ctrl-C ended a tuning. `result` is the best so far, None where nothing worked yet."""

    def __init__(self, result: Result | None) -> None:
        super().__init__("tuning was interrupted")
        self.result = result


class StoreLostError(StoreError):
    """The store could not be written any more, on a full disk say, and ended a tuning.

    `result` is the best so far, with every trial of the run, also those that are stored nowhere;
    None where nothing worked yet. What was stored before is kept, and a later run goes on from it.
    """

    def __init__(self, reason: str, result: Result | None) -> None:
        super().__init__(f"{reason}; what was stored is kept, and the next run goes on from there")
        self.result = result


class HostLostError(HostFailure):
    """The machine ran out of what every config needs, and that ended a tuning. `result` is the best
    so far, None where nothing worked yet."""

    def __init__(self, reason: str, result: Result | None) -> None:
        super().__init__(reason)
        self.result = result


class DeviceLostError(WhetError):
    """A config has ended all work on its device in this process, as an illegal access does on a
    GPU. What was measured is stored; `result` is the best so far, None where nothing worked yet."""

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

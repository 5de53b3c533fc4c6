"""Processes of one host take turns. The system releases a lock when its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from whet.core.decoding import number
from whet.core.holder import Holder
from whet.core.mark import ProcessName
from whet.engine.host import lives, this_process
from whet.store import OverlayStore, StoreReader
from whet.store.leases import Lease, LeaseHeld, LeasingStore

# A wait is worth a line once it is as long as this, or half of what it may be.
ANNOUNCE_S = 0.5

# How often a lease that another host has is asked for.
_POLL_S = 0.25

# More than anybody writes into a lock's file.
_LONGEST = 4096

_UNREADABLE = (LookupError, TypeError, ValueError, OverflowError, OSError, RecursionError)


class Turn:
    """Only one process at a time tunes a workload for a store.

    Whoever has the turn signs the lock's file, for others to say whom they wait for. Where the
    store has no folder for locks, or no file can be made there, it is always one's turn.
    """

    def __init__(self, store: StoreReader, workload_id: str) -> None:
        folder = store.lock_folder
        own = store.layers[0] if isinstance(store, OverlayStore) else store
        self._fleet = own if isinstance(own, LeasingStore) else None
        self._workload_id = workload_id
        self._lease: Lease | None = None
        self._elsewhere: LeaseHeld | None = None
        self._path = None if folder is None else folder / f"{workload_id}.lock"
        self._descriptor: int | None = None
        self._mine = False

    def __enter__(self) -> Turn:
        if self._path is not None:
            self._descriptor = _opened(self._path)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lease is not None:
            self._lease.release()
        if self._descriptor is None:
            return
        if self._mine:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
        _let_go(self._descriptor)

    def take(self) -> bool:
        """Without waiting."""
        return self.wait(0.0)

    def wait(self, wait_s: float, told: Callable[[Holder], None] | None = None) -> bool:
        """Whether it is one's turn within `wait_s` seconds. `told` hears once who has it now, where
        that is worth saying."""

        def tell() -> None:
            if told is not None:
                told(self.holder)

        deadline = time.monotonic() + wait_s
        if self._descriptor is None or self._mine or _acquire(self._descriptor, wait_s, tell):
            self._mine = self._descriptor is not None
            self._sign()
            return self._leased(deadline, tell)
        return False

    def _leased(self, deadline: float, tell: Callable[[], None]) -> bool:
        """Whether no other host has the turn; where the server is away nobody can be asked."""
        if self._fleet is None or self._lease is not None:
            return True
        process, told = json.dumps(this_process().to_json()), False
        while True:
            answer = self._fleet.lease(self._workload_id, process)
            if not isinstance(answer, LeaseHeld):
                self._lease, self._elsewhere = answer, None
                return True
            self._elsewhere = answer
            left = deadline - time.monotonic()
            if not told and left > 0:
                told = True
                tell()
            if left <= 0:
                return False
            time.sleep(min(_POLL_S, left))

    @property
    def holder(self) -> Holder:
        """As the file tells, which may be empty, left by a process that was killed, or foreign; or
        the server, where it is one of another host."""
        try:
            process, since = self._signed()
            time.localtime(since)
        except _UNREADABLE:
            return Holder()
        if lives(process) is False or process.pid <= 0 or not process.host.isprintable():
            return Holder()
        host = "" if process.host == platform.node() else process.host
        return Holder(process.pid, since, host, own=process == this_process())

    def _signed(self) -> tuple[ProcessName, float]:
        if self._elsewhere is not None:
            said = ProcessName.from_json(json.loads(self._elsewhere.process))
            return said, self._elsewhere.since
        assert self._descriptor is not None
        data = json.loads(os.pread(self._descriptor, _LONGEST, 0))
        return ProcessName.from_json(data["process"]), float(number(data, "since"))

    def _sign(self) -> None:
        if self._descriptor is None:
            return
        text = json.dumps({"v": 1, "process": this_process().to_json(), "since": time.time()})
        # On a full disk nobody learns whom they wait for, and that is all.
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text.encode(), 0)


@contextmanager
def file_lock(path: Path, wait_s: float) -> Iterator[bool]:
    """Yields whether the lock was had within `wait_s` seconds.

    Where no file can be made (a read-only folder) there is nothing to agree on: it was had.
    """
    descriptor = _opened(path)
    if descriptor is None:
        yield True
        return
    try:
        yield _acquire(descriptor, wait_s)
    finally:
        _let_go(descriptor)


def _opened(path: Path) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return None


def _let_go(descriptor: int) -> None:
    # Closing alone would not do: a worker forked meanwhile has the descriptor too.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _acquire(descriptor: int, wait_s: float, tell: Callable[[], None] | None = None) -> bool:
    began = time.monotonic()
    announce_s = min(ANNOUNCE_S, wait_s / 2)
    pause = 0.001
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - began
            if tell is not None and waited >= announce_s:
                tell()
                tell = None
            if waited >= wait_s:
                return False
            time.sleep(min(pause, max(0.0, wait_s - waited)))
            pause = min(0.05, 2 * pause)
        else:
            return True

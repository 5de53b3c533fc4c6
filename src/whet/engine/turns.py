"""Processes of one host take turns. The system releases a lock when its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whet.core.decoding import number
from whet.core.process import Holder, ProcessName, lives, this_process

if TYPE_CHECKING:
    from whet.store import StoreReader
    from whet.store.protocol import Lease, LeaseHeld

# A wait is worth a line once it is as long as this, or half of what it may be.
ANNOUNCE_S = 0.5

# How long another process may be on the GPU at once: one that takes longer hangs.
LONGEST_VISIT_S = 60.0

# How often a lease that another host has is asked for.
_POLL_S = 0.25

# More than anybody writes into a lock's file.
_LONGEST = 4096

# How often a file or folder that others remove is made anew.
_TRIES = 100

_UNREADABLE = (LookupError, TypeError, ValueError, OverflowError, OSError, RecursionError)


class Turn:
    """Only one process at a time tunes a workload for a store.

    Whoever has the turn signs the lock's file, for others to say whom they wait for. Where the
    store has no folder for locks, or no file can be made there, it is always one's turn.
    """

    def __init__(self, store: StoreReader, workload_id: str) -> None:
        from whet.store.overlay import OverlayStore  # a decorated kernel imports this module, too
        from whet.store.protocol import LeasingStore

        folder = store.lock_folder
        own = store.layers[0] if isinstance(store, OverlayStore) else store
        self._fleet = own if isinstance(own, LeasingStore) else None
        self._workload_id = workload_id
        self._lease: Lease | None = None
        self._elsewhere: LeaseHeld | None = None
        self._path = None if folder is None else folder / f"{workload_id}.lock"
        self._file: _LockFile | None = None

    def __enter__(self) -> Turn:
        if self._path is not None:
            self._file = _LockFile(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lease is not None:
            self._lease.release()
        if self._file is not None:
            self._file.close()

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
        if self._file is None or self._file.acquire(wait_s, tell):
            self._sign()
            return self._leased(deadline, tell)
        return False

    def _leased(self, deadline: float, tell: Callable[[], None]) -> bool:
        """Whether no other host has the turn; where the server is away nobody can be asked."""
        if self._fleet is None or self._lease is not None:
            return True
        from whet.store.protocol import LeaseHeld

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
        assert self._file is not None
        assert self._file.descriptor is not None
        data = json.loads(os.pread(self._file.descriptor, _LONGEST, 0))
        return ProcessName.from_json(data["process"]), float(number(data, "since"))

    def _sign(self) -> None:
        if self._file is None or self._file.descriptor is None:
            return
        text = json.dumps({"v": 1, "process": this_process().to_json(), "since": time.time()})
        # On a full disk nobody learns whom they wait for, and that is all.
        with suppress(OSError):
            os.ftruncate(self._file.descriptor, 0)
            os.pwrite(self._file.descriptor, text.encode(), 0)


@contextmanager
def file_lock(path: Path, wait_s: float) -> Iterator[bool]:
    """Yields whether the lock was had within `wait_s` seconds.

    Where no file can be made beside a store (a read-only folder) there is nothing to agree on: it
    was had. In the folder that all users share (`shared_locks`) others may have it: it was not.
    """
    lock = _LockFile(path, shared=path.parent == shared_locks())
    try:
        yield lock.acquire(wait_s)
    finally:
        lock.close()


_thread = threading.local()


@dataclass(frozen=True)
class OneAtATime:
    """Called, it holds a GPU's lock: two processes that time on one device at once time each other.
    A hook that tunes another kernel meanwhile is in the same thread, and has the lock already.

    After `wait_s` seconds it goes on without: a disturbed timing is better than none.
    """

    path: Path
    wait_s: float

    @contextmanager
    def __call__(self) -> Iterator[None]:
        held: set[Path] = _thread.__dict__.setdefault("held", set())
        if self.path in held:
            yield
            return
        with file_lock(self.path, self.wait_s):
            held.add(self.path)
            try:
                yield
            finally:
                held.discard(self.path)


class _LockFile:
    """Whoever had the lock removes its file, and the folder with the last one. So the lock on a
    file that was removed does not count: who waited for that one opens the next. What is `shared`
    with other users stays: they cannot remove it."""

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self._path = path
        self._shared = shared
        self._held = False
        self._opened = opened_for_all if shared else _opened
        self.descriptor = self._opened(path)

    def acquire(self, wait_s: float, tell: Callable[[], None] | None = None) -> bool:
        began = time.monotonic()
        announce_s = min(ANNOUNCE_S, wait_s / 2)
        pause, reopened = 0.001, 0
        while self.descriptor is not None and not self._held:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
                reopened += 1
                self._held = self._is_there(self.descriptor) or reopened > _TRIES
                if not self._held:
                    os.close(self.descriptor)
                    self.descriptor = self._opened(self._path)
        return self._held or not self._shared

    def close(self) -> None:
        if self.descriptor is None:
            return
        if self._held and not self._shared and self._is_there(self.descriptor):
            with suppress(OSError):
                self._path.unlink()
                self._path.parent.rmdir()
        # Closing alone would not do: a worker forked meanwhile has the descriptor too.
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)

    @staticmethod
    def _is_there(descriptor: int) -> bool:
        return os.fstat(descriptor).st_nlink > 0


def _opened(path: Path) -> int | None:
    for _ in range(_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except (FileNotFoundError, FileExistsError):
            continue  # somebody has just removed the folder
        except OSError:
            return None
    return None


# Locks of GPUs, where a store has no folder of its own. Anybody may have made this folder, or put
# anything into it: no link is followed, and nothing is ever written into a lock's file there. It is
# not the temporary folder of the environment, which may be another one for each user.
_FOLDER = Path("/tmp/whet-locks")

_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_said: set[str] = set()


def shared_locks() -> Path:
    return _FOLDER


def opened_for_all(path: Path) -> int | None:
    """A file that every user can lock, made where there is none. Where it cannot be had, that is
    said once, and it is None."""
    try:
        folder = _folder(path.parent)
        try:
            return _file(path.name, folder)
        finally:
            os.close(folder)
    except OSError as error:
        text = (
            f"cannot lock {path} ({error.strerror or error}), so other processes may measure on "
            f"the same GPU at once; have its owner or root remove {path.parent}"
        )
        if text not in _said:
            _said.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None


def _folder(path: Path) -> int:
    try:
        os.mkdir(path)
        made = True
    except FileExistsError:
        made = False
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
    if made:
        os.fchmod(folder, 0o1777)  # mkdir's own mode is cut by the umask
    return folder


def _file(name: str, folder: int) -> int:
    """Linux refuses O_CREAT for another user's file in such a folder, so it is opened first."""
    try:
        found = os.open(name, os.O_RDWR | _SAFELY, dir_fd=folder)
    except FileNotFoundError:
        try:
            made = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY, 0o666, dir_fd=folder)
            os.fchmod(made, 0o666)
            return made
        except FileExistsError:  # by another process, just now
            found = os.open(name, os.O_RDWR | _SAFELY, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(0, "it is no file")
    return found

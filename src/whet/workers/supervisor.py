"""One per process while anything of ours is open: the reaper, and the thread that starts workers.

Workers are started by one long-lived thread because the kernel's "die with your parent" means the
thread that forked, and because an interrupt of the main thread cannot cut a start in half there.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from whet.workers import process, reaper

_REAPER_LIMIT_S = 10.0


class StarterCall:
    """Something for the starter thread to do."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.ended = threading.Event()
        self.problem: BaseException | None = None

    def carry_out(self) -> None:
        try:
            self.call()
        except BaseException as problem:
            self.problem = problem
        finally:
            self.ended.set()


class Supervisor:
    """Got from `lease()` and given back with `release()`; ends with its last lease."""

    def __init__(self) -> None:
        self.leases = 0
        self._owner = os.getpid()
        self._orders: SimpleQueue[StarterCall | None] = SimpleQueue()
        self._wards: dict[str, tuple[str, int]] = {}
        self._line = threading.RLock()
        self._pipe: int | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, name="whet-starter", daemon=True)
        self._thread.start()

    @property
    def foreign(self) -> bool:
        """True in a process that was forked from the one this belongs to."""
        return os.getpid() != self._owner

    def run(self, call: Callable[[], None]) -> None:
        """Runs `call` in the starter thread, to its end even if the caller is interrupted."""
        if threading.current_thread() is self._thread:
            call()
            return
        order = self.post(call)
        order.ended.wait()
        if order.problem is not None:
            raise order.problem

    def post(self, call: Callable[[], None]) -> StarterCall:
        """Leaves `call` to the starter thread, without waiting for it."""
        order = StarterCall(call)
        self._orders.put(order)
        return order

    def expect(self, token: str, folder: str) -> None:
        """Before a worker starts, so that no moment is left in which nobody would clean up."""
        with self._line:
            self._wards[token] = (folder, 0)
            if not self._tell(f"+ {token} {folder}\n"):
                self._start_reaper()

    def started(self, token: str, pid: int) -> None:
        with self._line:
            self._wards[token] = (self._wards[token][0], pid)
            self._tell(f"= {token} {pid}\n")

    def forget(self, token: str) -> None:
        with self._line:
            self._wards.pop(token, None)
            self._tell(f"- {token}\n")

    def release(self) -> None:
        if self.foreign:
            return
        with _lock:
            self.leases -= 1
            if self.leases == 0:
                _end(self)

    def stop(self) -> None:
        self._orders.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._stop_reaper()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            order.carry_out()
            del order

    def _tell(self, line: str) -> bool:
        if self._pipe is None:
            return False
        try:
            os.write(self._pipe, os.fsencode(line))
        except OSError:
            return False
        return True

    def _start_reaper(self) -> None:
        self._stop_reaper()
        reader, self._pipe = process.new_pipe()
        try:
            self._reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", reaper.__file__],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        finally:
            process.close_descriptor(reader)
        for token, (folder, pid) in list(self._wards.items()):
            self._tell(f"+ {token} {folder}\n")
            if pid:
                self._tell(f"= {token} {pid}\n")

    def _stop_reaper(self) -> None:
        process.close_descriptor(self._pipe)
        self._pipe = None
        if self._reaper is not None:
            try:
                self._reaper.wait(_REAPER_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._reaper.kill()
                self._reaper.wait()
            self._reaper = None


class Closable(Protocol):
    def close(self) -> None: ...


_lock = threading.RLock()
_current: Supervisor | None = None
_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def lease() -> Supervisor:
    global _current
    with _lock:
        if _current is None:
            _current = Supervisor()
        _current.leases += 1
        return _current


def close_at_exit(thing: Closable) -> None:
    """For what its owner never closed."""
    _open.add(thing)


def _close_all() -> None:
    for thing in list(_open):
        thing.close()


def _end(supervisor: Supervisor) -> None:
    global _current
    if _current is supervisor:
        _current = None
    with contextlib.suppress(OSError):
        supervisor.stop()


def _forget_parents_keeper() -> None:
    global _lock, _current
    _lock = threading.RLock()
    _current = None
    _open.clear()


os.register_at_fork(after_in_child=_forget_parents_keeper)
atexit.register(_close_all)

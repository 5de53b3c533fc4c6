"""One worker process, seen from its parent: how it starts, what it leaves, how it ends; when this
process may be forked, and what a fork does not get."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal

from whet.core.errors import UsageError, did_you_mean
from whet.workers import child, reaper
from whet.workers.answers import WorkerNotStarted
from whet.workers.child import HEADER

if TYPE_CHECKING:
    from whet.workers.supervisor import Supervisor

Mode = Literal["spawn", "fork"]

START_LIMIT_S = 180.0
TICK_S = 0.25
"""How often a running worker's output and memory are kept within bounds."""

_OUTPUT_LIMIT = 4 << 20
_TAIL_BYTES = 4096
_EXIT_LIMIT_S = 1.0
_LOST_IN_FORK = 70
_SHARED = re.compile(rb"^RssShmem:\s+(\d+) kB$", re.MULTILINE)
_FORK_WARNS = sys.version_info >= (3, 12)


class Worker:
    """A running process of ours with its folder, connection and captured output.

    After `retire`, `returncode` is what it ended with, None if it was still running then, and
    `last_words` what it printed last.
    """

    def __init__(self, token: str, folder: str, pid: int, channel: Channel) -> None:
        self.token = token
        self.folder = folder
        self.pid = pid
        self.channel = channel
        self.pidfd = _watch_process(pid)
        self.returncode: int | None = None
        self.last_words = ""
        self._reaped = False
        self._dropped = b""

    @property
    def workdir(self) -> str:
        return _workdir(self.folder)

    @property
    def tree(self) -> reaper.Tree:
        return reaper.Tree(self.pid, self.token, self.folder)

    def tail(self) -> str:
        """The last lines it printed, on either stream."""
        kept = self._dropped + _read_tail(_output(self.folder))
        text = kept[-_TAIL_BYTES:].decode("utf-8", "replace")
        if len(kept) > _TAIL_BYTES:
            text = text.partition("\n")[2] or text
        return text.strip()

    def bound_output(self) -> None:
        path = _output(self.folder)
        with contextlib.suppress(OSError):
            if os.stat(path).st_size > _OUTPUT_LIMIT:
                self._dropped = _read_tail(path)
                os.truncate(path, 0)

    def forget_output(self) -> None:
        self._dropped = b""

    def shared_bytes(self) -> int:
        """The memory it uses that it can share with others and that no file on a disk backs."""
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/status", "rb") as file:
            if found := _SHARED.search(file.read()):
                return int(found[1]) << 10
        return 0

    def exited(self) -> bool:
        """Whether the process has ended. Where that can be seen, it stays a zombie until `end`."""
        return self._ended(0.0)

    def await_exit(self) -> None:
        """After it hung up: what it died of is known a moment after its connection closes."""
        self._ended(_EXIT_LIMIT_S)

    def end(self) -> None:
        """Kills the process, without its descendants, and leaves no zombie."""
        if not self._reaped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._reap(0)

    def _ended(self, wait_s: float) -> bool:
        if self._reaped:
            return True
        if self.pidfd is None:
            self._reap(os.WNOHANG)
            return self._reaped
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(wait_s * 1000))

    def _reap(self, options: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:  # somebody else in this process waits for all children
            self._reaped = True
            return
        if pid:
            self._reaped = True
            self.returncode = os.waitstatus_to_exitcode(status)


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_mode(mode: str) -> Mode:
    if mode == "spawn":
        if not sys.executable:
            raise UsageError("Python does not know its own executable; use mode 'fork'")
        return "spawn"
    if mode == "fork":
        return "fork"
    raise UsageError(f"unknown worker mode '{mode}'{did_you_mean(mode, ('spawn', 'fork'))}")


def pack(work: object, what: str, remedy: str = "; use mode 'fork'") -> bytes:
    """Pickles what a worker is to receive, or says why that cannot be."""
    try:
        return pickle.dumps(work, protocol=5)
    except Exception as problem:
        reason = f"{type(problem).__qualname__}: {problem}"
        raise TypeError(f"{what} cannot be sent to a worker ({reason}){remedy}") from problem


def spawn(supervisor: Supervisor, for_session: bool) -> Worker:
    """Starts a fresh interpreter. It is ready for work when it has sent a frame."""

    def start(far: int, token: str, folder: str, output: int) -> int:
        process = subprocess.Popen(
            [sys.executable, "-P", child.__file__, str(far), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=_workdir(folder),
            env={**os.environ, **_environment(token, folder)},
            pass_fds=(far,),
            start_new_session=True,
        )
        process.returncode = 0  # we reap it ourselves; the object must not try
        return process.pid

    worker = _start(supervisor, start)
    paths = [os.path.abspath(path) for path in sys.path]
    worker.channel.send(pickle.dumps((paths, for_session), protocol=5))
    return worker


def fork(supervisor: Supervisor, main: Callable[[child.ParentLink], None]) -> Worker:
    """Starts a copy of this process, which runs `main` and ends, whatever `main` does."""

    def start(far: int, token: str, folder: str, output: int) -> int:
        parent = os.getpid()
        environment = _environment(token, folder)
        try:
            with no_forks(), _handed_over(far), _fork_with_threads_allowed():
                pid = os.fork()
            if pid == 0:
                child.settle_fork(parent, _workdir(folder), output, environment)
                main(child.ParentLink(far, _workdir(folder)))
                os._exit(0)
            return pid
        finally:
            if os.getpid() != parent:
                os._exit(_LOST_IN_FORK)

    return _start(supervisor, start)


def retire(supervisor: Supervisor, workers: Sequence[Worker], sweep: bool = True) -> None:
    """Ends workers with all their descendants, and removes what they left.

    Without `sweep` there is no search for descendants: for workers known to have none.
    """
    if not workers:
        return
    running = [worker for worker in workers if not worker.exited()]
    strays = reaper.kill_trees([worker.tree for worker in workers]) if sweep else set()
    for worker in workers:
        worker.end()
    for worker in running:
        worker.returncode = None
    for pid in strays.difference(worker.pid for worker in workers):
        # Ours to reap only where this process adopts orphans, as the first of a container does.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    for worker in workers:
        worker.last_words = worker.tail()
        worker.channel.close()
        close_descriptor(worker.pidfd)
        reaper.remove_folder(worker.folder)
        supervisor.forget(worker.token)


def _start(supervisor: Supervisor, start: Callable[[int, str, str, int], int]) -> Worker:
    try:
        return _started(supervisor, start)
    except OSError as problem:
        raise WorkerNotStarted.because(problem) from problem


def _started(supervisor: Supervisor, start: Callable[[int, str, str, int], int]) -> Worker:
    token = os.urandom(8).hex()
    folder = os.path.join(tempfile.gettempdir(), f"whet-{token}")
    near, far, output = -1, -1, -1
    try:
        supervisor.expect(token, folder)
        near, far = _new_connection()
        os.makedirs(_workdir(folder), mode=0o700)
        output = os.open(_output(folder), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        pid = start(far, token, folder, output)
    except BaseException:
        close_descriptor(near)
        reaper.remove_folder(folder)
        supervisor.forget(token)
        raise
    finally:
        close_descriptor(far)
        if output >= 0:
            os.close(output)
    supervisor.started(token, pid)
    return Worker(token, folder, pid, Channel(near))


def _workdir(folder: str) -> str:
    return os.path.join(folder, "work")


def _output(folder: str) -> str:
    return os.path.join(folder, "output")


def _environment(token: str, folder: str) -> dict[str, str]:
    return {reaper.MARKER: token, "TMPDIR": _workdir(folder)}


def _read_tail(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES - 1))
            return file.read()
    except OSError:
        return b""


@contextlib.contextmanager
def _fork_with_threads_allowed() -> Iterator[None]:
    """Python 3.12 warns of every fork beside threads; ours only runs what was made to be forked."""
    if not _FORK_WARNS:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


_CHUNK = 1 << 18

# A header that announces more than this was written by the work itself, into what is not its own.
_LONGEST = 1 << 40


class Channel:
    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._incoming = bytearray()
        self._outgoing = memoryview(b"")

    @property
    def awaited(self) -> int:
        """What a poll waits for."""
        return select.POLLIN | (select.POLLOUT if self._outgoing else 0)

    def send(self, payload: bytes) -> None:
        """Sends what fits now; `flush` sends the rest."""
        self._outgoing = memoryview(bytes(self._outgoing) + HEADER.pack(len(payload)) + payload)
        self.flush()

    def flush(self) -> None:
        """A worker that is gone shows itself to `receive`, so its broken pipe is no error here."""
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[os.write(self.descriptor, self._outgoing) :]
        except BlockingIOError:
            return
        except ConnectionError:
            self._outgoing = memoryview(b"")

    def receive(self) -> bytes | None:
        """The next frame, or None as long as it is incomplete. EOFError once there is none, or
        what comes is none."""
        while (frame := self._take_frame()) is None:
            try:
                part = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return None
            except ConnectionError:
                part = b""
            if not part:
                raise EOFError
            self._incoming += part
        return frame

    def close(self) -> None:
        close_descriptor(self.descriptor)

    def _take_frame(self) -> bytes | None:
        if len(self._incoming) < HEADER.size:
            return None
        length = HEADER.unpack_from(self._incoming)[0]
        if length > _LONGEST:
            raise EOFError
        end = HEADER.size + length
        if len(self._incoming) < end:
            return None
        frame = bytes(self._incoming[HEADER.size : end])
        del self._incoming[:end]
        return frame


# Our file descriptors are kept out of every process that is forked from this one. A child that
# held another worker's connection, or the reaper's pipe, would keep it open after its owner is gone
# and nobody would notice. They are plain integers: an object that owns a descriptor would
# close its number a second time in the child.
_ours: set[int] = set()
_launching = threading.local()


def new_pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    _ours.update((reader, writer))
    return reader, writer


def _new_connection() -> tuple[int, int]:
    near, far = socket.socketpair()
    ends = near.detach(), far.detach()
    _ours.update(ends)
    return ends


def _watch_process(pid: int) -> int | None:
    """A descriptor that turns readable when the process ends, where there is such a thing."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
    _ours.add(descriptor)
    return descriptor


def close_descriptor(descriptor: int | None) -> None:
    if descriptor is not None and descriptor in _ours:
        _ours.discard(descriptor)
        os.close(descriptor)


@contextlib.contextmanager
def _handed_over(descriptor: int) -> Iterator[None]:
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


_lock = threading.RLock()


# OpenBLAS ends its threads before a fork. A linear algebra call that is under way in another thread
# then waits for them for ever, and the fork waits for the call.
def no_forks() -> AbstractContextManager[bool]:
    """Inside, workers that are asked for start a little later. For work that may call NumPy's
    linear algebra while builds are under way."""
    return _lock


def _new_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)

"""`Session`: one object that lives in a process of its own; and processes that wait to be needed
for one, with what takes long to import imported."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import pickle
import select
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from whet.core import errors
from whet.core.frozen import FrozenMap
from whet.workers import child, process, reaper
from whet.workers.answers import (
    Garbled,
    RemoteError,
    Reply,
    Report,
    WorkerDied,
    WorkerTimeout,
    read_report,
)
from whet.workers.process import START_LIMIT_S, TICK_S, Mode, Worker
from whet.workers.supervisor import Supervisor, close_at_exit, lease


class RemoteObject(Protocol):
    """What a `Session` is to its callers, wherever the process runs."""

    @property
    def generation(self) -> int: ...

    @property
    def made(self) -> int: ...

    @property
    def set_up(self) -> FrozenMap[float]: ...

    def prepare(self) -> None: ...

    def discard(self) -> None: ...

    def call(
        self,
        method: str,
        *args: Any,
        limit_s: float | None = None,
        memory_bytes: int | None = None,
        parts_s: Mapping[str, float] | None = None,
    ) -> Reply: ...

    def abort(self) -> None: ...

    def close(self, wait: bool = True) -> None: ...


class OpenSession(Protocol):
    """Starts a process and has `factory()` made there: `Session` itself, or the same elsewhere."""

    def __call__(
        self, factory: Callable[[], Any], mode: Mode | str = ..., *, preload: Sequence[str] = ...
    ) -> RemoteObject: ...


class _Limit:
    """Seconds and bytes that count from now. Of memory that is not shared, the child itself has
    been told its limit; shared memory the system does not count for it.

    `parts` are the seconds from a milestone to the next one, by the name of the first.
    """

    def __init__(
        self,
        seconds: float,
        memory_bytes: int | None,
        worker: Worker,
        parts: Mapping[str, float] | None = None,
    ) -> None:
        self.seconds = seconds
        self.milestone = ""
        self._parts = parts or {}
        self._end = time.monotonic() + seconds
        self._memory_bytes = memory_bytes
        self._worker = worker
        self._shared = 0 if memory_bytes is None else worker.shared_bytes()

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    def reached(self, milestone: str) -> None:
        if milestone in self._parts:
            self.milestone, self.seconds = milestone, self._parts[milestone]
            self._end = time.monotonic() + self.seconds

    def check_memory(self) -> None:
        if self._memory_bytes is None:
            return
        taken = self._worker.shared_bytes() - self._shared
        if taken > self._memory_bytes:
            raise MemoryError(
                f"used {taken >> 20} MiB of shared memory, more than the limit of "
                f"{self._memory_bytes >> 20} MiB"
            )


@dataclass
class _SessionSeat:
    """The child of the moment. Only the supervisor's thread fills and clears it.

    `asked`: a request is out. Between calls that means the last one was interrupted, and an
    answer nobody waits for must not meet the next. `ordered`: it has been told to make its object;
    `owed` are the frames it sends before it says how that went.
    """

    worker: Worker | None = None
    made: bool = False
    asked: bool = False
    closed: bool = False
    ordered: bool = False
    owed: int = 0
    spares: Spares | None = None


class Session:
    """Calls methods of the object that `factory()` makes in a child process, one at a time.

    The child starts with the session. When it has died, was killed for taking too long, or was
    interrupted in the middle of a call, the next call starts another; `generation` counts the
    starts, so a caller sees that what it had loaded is gone. With `mode="spawn"` the factory is
    pickled, with "fork" inherited; arguments and results are pickled in both.

    After a first death, spawned spares wait with the modules in `preload` imported, so that the
    next replacement need not import them; without a death there are none.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        mode: Mode | str = "spawn",
        start_limit_s: float = START_LIMIT_S,
        preload: Sequence[str] = (),
    ) -> None:
        self._mode = process.check_mode(mode)
        self._factory = factory
        handed_over = (factory,) if self._mode == "spawn" else ()
        self._make_request = process.pack((None, handed_over), "the factory")
        self._start_limit_s = start_limit_s
        self.generation = 0
        # The last generation that has made its object; less than `generation` where that failed, or
        # has not been waited for yet.
        self.made = 0
        # Where the time went in which the last object was made, by stage, in seconds.
        self.set_up: FrozenMap[float] = FrozenMap()
        self._lock = threading.RLock()
        worthwhile = self._mode == "spawn" and preload
        self._seat = _SessionSeat(spares=Spares(preload) if worthwhile else None)
        self._supervisor = lease()
        self._finalizer = weakref.finalize(self, _abandon, self._supervisor, self._seat)
        self._finalizer.atexit = False
        close_at_exit(self)
        try:
            self._worker()
        except BaseException:
            self.close()
            raise

    @property
    def tempdir(self) -> Path:
        """The child's working folder. It goes with the child."""
        with self._lock:
            return Path(self._worker().workdir)

    def prepare(self) -> None:
        """Has the object made, without waiting for it: how that went is for the next call."""
        with self._lock:
            self._order(self._worker())

    def discard(self) -> None:
        """Ends the child, which is of no more use; the next call starts another."""
        with self._lock:
            self._discard()

    def call(
        self,
        method: str,
        *args: Any,
        limit_s: float | None = None,
        memory_bytes: int | None = None,
        parts_s: Mapping[str, float] | None = None,
    ) -> Reply:
        """`object.method(*args)`, in the child. From a milestone that `parts_s` names, the call may
        take so many seconds to the next such one or to its end.

        Raises `WorkerDied`, `WorkerTimeout`, or what the method raised: `ConfigFailure`, other
        errors of ours and Python's built-in ones as themselves, the rest as `RemoteError`. A child
        that takes more shared memory than `memory_bytes` is killed for a `MemoryError`.
        """
        payload = process.pack((method, args), f"an argument of '{method}'", remedy="")
        with self._lock:
            worker = self._worker()
            try:
                if not self._seat.made:
                    self._make(worker)
                seconds = math.inf if limit_s is None else limit_s
                limit = _Limit(seconds, memory_bytes, worker, parts_s)
                report = self._exchange(worker, payload, memory_bytes, limit)
            except BaseException:
                self._discard()
                raise
        if not report.ok:
            _raise(report)
        return Reply(report.value, report.seconds, report.stages)

    def abort(self) -> None:
        """Aborts the child, from any thread: a call under way ends in `WorkerDied`."""
        worker = self._seat.worker
        if worker is not None:
            with contextlib.suppress(OSError):
                if worker.pidfd is None:
                    os.kill(worker.pid, signal.SIGABRT)
                else:
                    signal.pidfd_send_signal(worker.pidfd, signal.SIGABRT)

    def close(self, wait: bool = True) -> None:
        """Without `wait`, what the child holds may be held a moment longer."""
        if not self._finalizer.detach() or self._supervisor.foreign:
            return
        if not wait:
            _abandon(self._supervisor, self._seat)
            return
        self._supervisor.run(lambda: _close(self._supervisor, self._seat))
        self._supervisor.release()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _worker(self) -> Worker:
        if self._seat.closed or self._supervisor.foreign:
            raise RuntimeError("the session is closed, or was opened by another process")
        if self._seat.asked:
            self._discard()
        if self._seat.worker is None:
            self.generation += 1
            self._supervisor.run(_starter(self._supervisor, self._seat, self._mode, self._factory))
            if self.generation > 1:
                self._supervisor.post(_restocking(self._supervisor, self._seat))
        assert self._seat.worker is not None
        return self._seat.worker

    def _order(self, worker: Worker) -> None:
        if not self._seat.ordered:
            self._seat.ordered = True
            self._send(worker, self._make_request, None)

    def _make(self, worker: Worker) -> None:
        limit = _Limit(self._start_limit_s, None, worker)
        self._order(worker)
        while self._seat.owed:
            self._await_frame(worker, limit)
            self._seat.owed -= 1
        self._seat.asked = True
        report = self._answer(worker, limit)
        if not report.ok:
            _raise(report)
        self._seat.made = True
        self.made = self.generation
        self.set_up = report.stages

    def _exchange(
        self, worker: Worker, payload: bytes, memory_bytes: int | None, limit: _Limit
    ) -> Report:
        self._seat.asked = True
        self._send(worker, payload, memory_bytes)
        return self._answer(worker, limit)

    def _send(self, worker: Worker, payload: bytes, memory_bytes: int | None) -> None:
        worker.forget_output()
        worker.channel.send(pickle.dumps((memory_bytes, payload), protocol=5))

    def _answer(self, worker: Worker, limit: _Limit) -> Report:
        frame = self._await_frame(worker, limit)
        while frame.startswith(child.MILESTONE):
            limit.reached(frame.removeprefix(child.MILESTONE).decode(errors="replace"))
            frame = self._await_frame(worker, limit)
        self._seat.asked = False
        try:
            return read_report(frame)
        except Garbled:
            raise self._died(worker) from None

    def _await_frame(self, worker: Worker, limit: _Limit) -> bytes:
        channel, poll = worker.channel, select.poll()
        # What came together with the frame before has been read already: no poll would tell of it.
        with contextlib.suppress(EOFError):
            if (frame := channel.receive()) is not None:
                return frame
        if worker.pidfd is not None:
            poll.register(worker.pidfd, select.POLLIN)
        while True:
            poll.register(channel.descriptor, channel.awaited)
            heard = dict(poll.poll(max(0.0, min(TICK_S, limit.left)) * 1000))
            gone = worker.pidfd in heard or (not heard and worker.exited())
            channel.flush()
            try:
                if (frame := channel.receive()) is not None:
                    return frame
            except EOFError:
                gone = True
            if gone:
                worker.await_exit()
                raise self._died(worker)
            if not heard:
                worker.bound_output()
                limit.check_memory()
            if limit.left <= 0:
                raise WorkerTimeout(limit.seconds, limit.milestone)

    def _died(self, worker: Worker) -> WorkerDied:
        self._discard()
        code = worker.returncode
        if code is not None and code < 0:
            return WorkerDied(-code, worker.last_words, None)
        return WorkerDied(None, worker.last_words, code)

    def _discard(self) -> None:
        self._supervisor.run(lambda: _empty(self._supervisor, self._seat))


def _starter(
    supervisor: Supervisor, seat: _SessionSeat, mode: Mode, factory: Callable[[], Any]
) -> Callable[[], None]:
    def start() -> None:
        if seat.closed or seat.worker is not None:
            return
        seat.made = seat.ordered = False
        if mode == "spawn":
            spare = None if seat.spares is None else seat.spares.take(supervisor)
            seat.owed = 1 if spare is None else SPARE_FRAMES
            seat.worker = spare or process.spawn(supervisor, for_session=True)
        else:
            seat.owed = 0
            seat.worker = process.fork(
                supervisor, lambda link: child.serve_session(link, child.Keep(factory))
            )

    return start


def _restocking(supervisor: Supervisor, seat: _SessionSeat) -> Callable[[], None]:
    def restock() -> None:
        if seat.spares is not None and not seat.closed:
            seat.spares.restock(supervisor)

    return restock


def _empty(supervisor: Supervisor, seat: _SessionSeat) -> None:
    worker, seat.worker = seat.worker, None
    seat.asked = False
    if worker is not None:
        process.retire(supervisor, [worker])


def _close(supervisor: Supervisor, seat: _SessionSeat) -> None:
    seat.closed = True
    _empty(supervisor, seat)
    if seat.spares is not None:
        seat.spares.close(supervisor)


def _abandon(supervisor: Supervisor, seat: _SessionSeat) -> None:
    """Closes a session without waiting: the collector runs this anywhere."""

    def close() -> None:
        _close(supervisor, seat)
        supervisor.release()

    if not supervisor.foreign:
        supervisor.post(close)


def _raise(report: Report) -> None:
    """Exits of the child and unknown exceptions stay what they are: news of another process."""
    remote = RemoteError(report.type_name, report.text, report.traceback)
    exception = report.exception
    home = type(exception).__module__
    if isinstance(exception, Exception) and home in ("builtins", errors.__name__):
        raise exception from remote
    raise remote


KEPT = 3

# What a spare sends before it does what it is taken for: that it is there, how its imports went,
# and how its surroundings were brought up to date.
SPARE_FRAMES = 3

# A process of its own keeps these, whatever the process it works for has.
_OWN = (reaper.MARKER, "TMPDIR")


@dataclass(frozen=True)
class _Preload:
    """Called in the child as if it made a session's object. What cannot be imported is left to
    whoever needs it, and to their error."""

    modules: tuple[str, ...]

    def __call__(self) -> None:
        for name in self.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


@dataclass(frozen=True)
class _Surroundings:
    """Those of the process that takes a spare, which may have changed since it was started."""

    paths: tuple[str, ...]
    variables: dict[str, str]

    def __call__(self) -> None:
        sys.path[:] = self.paths
        for name in os.environ.keys() - self.variables.keys() - {*_OWN}:
            del os.environ[name]
        os.environ.update(self.variables)


class Spares:
    """Only the supervisor's thread calls these."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._workers: list[Worker] = []

    def take(self, supervisor: Supervisor) -> Worker | None:
        """The oldest that is alive; it may still be importing."""
        while self._workers:
            worker = self._workers.pop(0)
            if not worker.exited():
                variables = {n: v for n, v in os.environ.items() if n not in _OWN}
                paths = tuple(os.path.abspath(path) for path in sys.path)
                _send(worker, _Surroundings(paths, variables))
                return worker
            process.retire(supervisor, [worker])
        return None

    def restock(self, supervisor: Supervisor) -> None:
        while len(self._workers) < KEPT:
            self._workers.append(_started(supervisor, _Preload(self._modules)))

    def close(self, supervisor: Supervisor) -> None:
        workers, self._workers = self._workers, []
        process.retire(supervisor, workers)


def _started(supervisor: Supervisor, preload: _Preload) -> Worker:
    worker = process.spawn(supervisor, for_session=True)
    _send(worker, preload)
    return worker


def _send(worker: Worker, make: _Preload | _Surroundings) -> None:
    work = pickle.dumps((None, (make,)), protocol=5)
    worker.channel.send(pickle.dumps((None, work), protocol=5))

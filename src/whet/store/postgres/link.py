"""`ServerLink`: asks a server without ever waiting long for it.

All that goes to the server goes through one thread. Who asks waits for the answer at most `wait_s`,
and once per outage: from then on the breaker is open, everybody is told at once that the server is
away, and the thread tries again by itself, at longer and longer intervals. A link that is made
meanwhile, by the same process, begins with an open breaker.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from whet.store.faults import ServerAwayError
from whet.store.postgres.address import PostgresAddress
from whet.store.postgres.store import PostgresStore
from whet.store.postgres.verified import open_direct

T = TypeVar("T")

logger = logging.getLogger("whet")

FIRST_RETRY_S, LAST_RETRY_S = 0.5, 30.0

# A connection that has said nothing for so long is given up: a network that was cut elsewhere
# tells nobody, and neither does a server that was stopped.
SILENT_S = 15.0


class _Job(Generic[T]):
    def __init__(self, work: Callable[[PostgresStore], T]) -> None:
        self.work = work
        self.done = threading.Event()
        self.answer: T | None = None
        self.error: BaseException | None = None


class ServerLink:
    """`on_return` is called in the link's thread whenever the server can be reached, and has
    something to do there; it returns after how many seconds to call it again, or None."""

    def __init__(
        self,
        address: PostgresAddress,
        *,
        wait_s: float,
        read_only: bool,
        on_return: Callable[[PostgresStore], float | None],
    ) -> None:
        self._address = address
        self._wait_s = wait_s
        self._read_only = read_only
        self._on_return = on_return
        self._closed = False
        self._begin()
        _links.add(self)
        if self._away:
            self._put(None)

    def _begin(self) -> None:
        """Also in a forked child, which has no thread and may not use the parent's connection."""
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._store: PostgresStore | None = None
        self._outage = (self._address.dsn, self._read_only)
        self._retry_s, self._retry_at = _outages.get(self._outage, (FIRST_RETRY_S, 0.0))
        self._away = self._told = self._outage in _outages
        self._due = False
        self._attempting: float | None = None

    @property
    def away(self) -> bool:
        return self._away

    def ask(self, work: Callable[[PostgresStore], T], wait_s: float | None = None) -> T:
        """What `work` returns; `ServerAwayError` where the server is, or takes too long."""
        self._give_up_silent()
        if self._away:
            raise self._is_away("it did not answer before")
        job = _Job(work)
        self._put(job)
        most_s = self._wait_s if wait_s is None else wait_s
        if not job.done.wait(most_s):
            # A first connection may well take longer, and then it is no outage yet. Nor is it one
            # if somebody had less patience than others have.
            if most_s >= self._wait_s:
                first = self._store is None
                self._break(None if first else f"no answer within {most_s * 1000:.0f} ms")
            raise self._is_away("no answer in time")
        if job.error is not None:
            raise job.error
        return job.answer  # type: ignore[return-value]

    def tell(self, work: Callable[[PostgresStore], Any]) -> None:
        """Has it done some time, and does not wait; it is left out while the server is away."""
        if not self._away:
            self._put(_Job(work))

    def nudge(self) -> None:
        """There is something for `on_return` to do."""
        self._give_up_silent()
        self._due = True
        self._put(None)

    def drain(self, seconds: float) -> None:
        """Has `on_return` do all there is to do, for so long, unless the server is known to be
        away. A first connection that is still being made is worth waiting for."""
        deadline = time.monotonic() + seconds
        again: float | None = 0.0
        while again is not None and time.monotonic() < deadline and not (self._away and self._told):
            job = _Job(self._on_return)
            self._put(job)
            job.done.wait(max(0.0, deadline - time.monotonic()))
            if job.error is not None:
                time.sleep(0.01)
            elif job.done.is_set():
                again = job.answer

    def close(self) -> None:
        """Nobody will come by: what the thread is at ends by itself, or is ended."""
        self._closed = True
        self._jobs.put(None)
        if self._attempting is not None:
            last = threading.Timer(SILENT_S + 1.0, self._give_up_silent)
            last.daemon = True
            last.start()

    def _is_away(self, reason: str) -> ServerAwayError:
        return ServerAwayError(self._address.location, reason)

    def _put(self, job: _Job[Any] | None) -> None:
        self._jobs.put(job)
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._serve, name="whet-store", daemon=True
                    )
                    self._thread.start()

    def _give_up_silent(self) -> None:
        """Whoever comes by looks whether the thread is stuck, so that it needs no watchman."""
        began, store = self._attempting, self._store
        if not (self._away or self._closed) or began is None or store is None:
            return
        if time.monotonic() - began > SILENT_S:
            self._attempting = None
            store.abort()

    def _serve(self) -> None:
        jobs, retry_at = self._jobs, self._retry_at
        while not (self._closed and jobs.empty()):
            pause = max(0.0, retry_at - time.monotonic()) if self._away or self._due else None
            try:
                job = jobs.get(timeout=pause)
            except queue.Empty:
                job = None
            if self._away and time.monotonic() < retry_at:
                if job is not None:
                    self._fail(job)
                continue
            self._attempting = time.monotonic()
            again = self._attempt(job)
            self._attempting = None
            if self._away:
                retry_at = time.monotonic() + self._retry_s
                self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)
                if self._outage in _outages:
                    _outages[self._outage] = self._retry_s, retry_at
            elif again is not None:
                self._due, retry_at = True, time.monotonic() + again
            else:
                retry_at = 0.0
        if self._store is not None:
            self._store.close()

    def _attempt(self, job: _Job[Any] | None) -> float | None:
        """One job, or a probe while the server is away, and then what has been waiting."""
        try:
            if self._store is None:
                self._store = open_direct(self._address, read_only=self._read_only)
            began = time.monotonic()
            if job is not None:
                self._do(job, self._store)
            elif self._away:
                self._store.run("probe")
            # One that answers too late is as good as away to who asks, but can still be told.
            if time.monotonic() - began <= self._wait_s:
                self._mend()
            if (self._due or job is None) and not self._closed:
                self._due = False
                return self._on_return(self._store)
        except Exception as error:
            if job is not None:
                self._fail(job, error)
            self._due = True
            self._break(error.reason if isinstance(error, ServerAwayError) else str(error))
        return None

    def _do(self, job: _Job[Any], store: PostgresStore) -> None:
        try:
            job.answer = job.work(store)
        except ServerAwayError:
            raise
        except Exception as error:
            job.error = error
        job.done.set()

    def _fail(self, job: _Job[Any], error: BaseException | None = None) -> None:
        job.error = error or self._is_away("it did not answer before")
        job.done.set()

    def _break(self, reason: str | None) -> None:
        """A line in the log once per outage, as soon as there is a reason for one."""
        if self._closed:
            return
        if not self._away:
            self._away, self._retry_s, self._told = True, FIRST_RETRY_S, False
            _outages[self._outage] = FIRST_RETRY_S, 0.0
            self._jobs.put(None)
        if reason is not None and not self._told:
            self._told = True
            logger.warning(
                "store %s is away (%s); results are kept here and sent later",
                self._address.location,
                reason,
            )

    def _mend(self) -> None:
        _outages.pop(self._outage, None)
        if self._away:
            self._away, self._due = False, True
            if self._told:
                logger.warning("store %s is back", self._address.location)


_links: weakref.WeakSet[ServerLink] = weakref.WeakSet()
# Servers that this process found away: how long to wait before the next try, and until when.
_outages: dict[tuple[str, bool], tuple[float, float]] = {}


def _after_fork() -> None:
    for link in list(_links):
        _inherited.append(link._store)
        link._begin()


# A child does not close what its parent has open.
_inherited: list[PostgresStore | None] = []

os.register_at_fork(after_in_child=_after_fork)

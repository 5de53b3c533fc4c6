"""Connections of one process to one server: made when needed, kept, and never shared by a fork."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from whet.core.errors import StoreError, UsageError, install_extra
from whet.store.faults import closed_error, postgres_error
from whet.store.postgres.address import PostgresAddress

_INSTALL = (
    "a postgresql:// store needs psycopg, which is not installed; "
    f"install it with {install_extra('postgres')}"
)

try:
    import psycopg
except ImportError:
    raise UsageError(_INSTALL) from None

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

# A server that is gone is noticed within some 15 s, also by who only listens.
_CONNECT: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 5,
    "tcp_user_timeout": 15_000,
    "application_name": "whet",
}

_COLLISIONS = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_MOST_TRIES = 5


class ConnectionPool:
    """At most `address.pool` connections, lent to one thread at a time.

    A forked child begins without any: those it inherits are its parent's, and libpq leaves them
    alone there. No threads of its own, since they would be missing in the child.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._begin()
        self._closed = False
        _pools.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._free = threading.BoundedSemaphore(self._address.pool)
        self._pid = os.getpid()

    def run(self, work: Callable[[Connection], T], *, one_state: bool, write: bool) -> T:
        """What `work` makes of a connection: in a transaction where it writes or has to see
        `one_state`. Work that met a connection which had died while idle is done once more, and
        so is what the server ended to let another go on; all work can be repeated, because ids are
        made by the client."""
        try:
            for _ in range(_MOST_TRIES):
                with self._lent() as (db, reused):
                    try:
                        return _done(db, work, one_state, write)
                    except _COLLISIONS:
                        continue
                    except psycopg.OperationalError:
                        if not (reused and db.broken):
                            raise
                self._drop_idle()
            with self._lent() as (db, _):
                return _done(db, work, one_state, write)
        except (psycopg.Error, UnicodeEncodeError) as error:
            if isinstance(error, UnicodeEncodeError):
                raise StoreError(
                    f"store {self._address.location} cannot hold {error.object!r}, which is not "
                    "text; use valid UTF-8"
                ) from None
            raise postgres_error(self._address, error) from None

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def abort(self) -> None:
        """Ends what waits for the server, in other threads, as if the connection had been lost."""
        with self._lock:
            busy = list(self._busy)
        for db in busy:
            with suppress(OSError, psycopg.Error):
                copy = socket.socket(fileno=os.dup(db.fileno()))
                with copy:
                    copy.shutdown(socket.SHUT_RDWR)

    def connect(self) -> Connection:
        """One that is nobody else's."""
        given = psycopg.conninfo.conninfo_to_dict(self._address.dsn)
        more = {name: value for name, value in _CONNECT.items() if name not in given}
        threshold = 5 if self._address.prepare else None
        return psycopg.connect(
            self._address.dsn, autocommit=True, prepare_threshold=threshold, **more
        )

    @contextmanager
    def _lent(self) -> Iterator[tuple[Connection, bool]]:
        if self._closed:
            raise closed_error(self._address.location)
        with self._free:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            db = kept or self.connect()
            with self._lock:
                self._busy.add(db)
            try:
                yield db, kept is not None
            finally:
                self._take_back(db)

    def _take_back(self, db: Connection) -> None:
        with self._lock:
            self._busy.discard(db)
        usable = not db.broken and not self._closed and self._pid == os.getpid()
        if usable and db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            with self._lock:
                self._idle.append(db)
        else:
            db.close()

    def _drop_idle(self) -> None:
        with self._lock:
            dropped, self._idle = self._idle, []
        for db in dropped:
            db.close()


def _done(db: Connection, work: Callable[[Connection], T], one_state: bool, write: bool) -> T:
    if write:
        with db.transaction():
            return work(db)
    if one_state:
        with db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return work(db)
    return work(db)


_pools: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()
# What a child inherits is kept, so that nothing tries to close it.
_inherited: list[list[Connection]] = []


def _after_fork() -> None:
    for pool in list(_pools):
        _inherited.append(pool._idle)
        pool._begin()


os.register_at_fork(after_in_child=_after_fork)

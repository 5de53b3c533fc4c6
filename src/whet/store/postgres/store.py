"""`PostgresStore`: one server, many hosts. Every trial, run and miss names its writer."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from whet._version import __version__
from whet.core.errors import StoreError
from whet.core.miss import Miss
from whet.core.process import user_and_host
from whet.core.run import Run
from whet.core.trial import Trial
from whet.store.beside import MOST_BYTES
from whet.store.faults import read_only_error, unknown_workload
from whet.store.postgres import schema
from whet.store.postgres.address import PostgresAddress, parse_address
from whet.store.postgres.connections import Connection, ConnectionPool
from whet.store.postgres.signing import Promotion, Signable, SigningKey
from whet.store.protocol import Models
from whet.store.rows import TRIAL_FIELDS, Row, TolerantReader, bad_row, miss_of, miss_values
from whet.store.sql import Session, SqlStore
from whet.store.statements import Statements
from whet.store.sweeping import GcReport, Sweep, plan_of_server

T = TypeVar("T")


@dataclass(frozen=True)
class Writer:
    """`role` is the database's word; the others are what the client said of itself."""

    role: str
    os_user: str
    host: str
    whet: str

    def __str__(self) -> str:
        return f"{self.os_user}@{self.host} as {self.role}, whet {self.whet}"


@dataclass(frozen=True)
class Contribution:
    """How many trials a writer has brought; `last` is when the newest was made."""

    writer: Writer
    trials: int
    last: float


@dataclass(frozen=True)
class Author:
    """The number of whoever writes, and what signs what does not bring a signature."""

    n: int
    key: SigningKey | None = None


class PostgresSession(Session):
    """Who writes to a workload locks its row first, so that its trials come one after another."""

    reader: TolerantReader
    only_origins = True

    def __init__(
        self, db: Connection, sql: Statements, reader: TolerantReader, author: Author | None = None
    ) -> None:
        super().__init__(db, sql, reader)
        self._author = author

    @property
    def author(self) -> Author:
        assert self._author is not None
        return self._author

    def listed(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers)

    def numbers(self, listed: list[int]) -> list[int]:
        return listed

    def lock(self, workload_ids: Iterable[str]) -> None:
        ids = list(workload_ids)
        known = {id for id, _ in self.rows("LOCK_WORKLOADS", workloads=ids)}
        for id in ids:
            if id not in known:
                raise unknown_workload(id, self.location)

    def insert(
        self,
        trials: Sequence[Trial],
        rows: Sequence[Row],
        standing: Collection[str] | None = None,
        signatures: Mapping[str, str] | None = None,
    ) -> int:
        key = self.author.key
        if signatures is None:
            signatures = {} if key is None else {one.id: key.sign(one) for one in trials}
        columns = {**_columns(rows, signatures), "writer": self.author.n}
        if standing is None:
            return len(self.rows("INSERT_TRIALS", **columns))
        fresh = [id for (id,) in self.rows("TAKE_TRIALS", **columns)]
        for workload_id in {trial.workload_id for trial in trials} if fresh else ():
            here = {"workload": workload_id, "fresh": fresh, "standing": list(standing)}
            self.change("TAKE_LATEST", **here)
        return len(fresh)

    def sign(self, thing: Signable) -> str | None:
        return None if self.author.key is None else self.author.key.sign(thing)

    def run_values(self, run: Run, signature: str | None) -> dict[str, Any]:
        more = {"taken": run.taken, "writer": self.author.n, "signature": signature}
        return {**super().run_values(run, signature), **more}

    def miss(self, miss: Miss) -> bool:
        return self.change("MISS", **miss_values(miss), writer=self.author.n) > 0

    def everything(self, workload_id: str) -> tuple[list[Trial], list[Trial], list[Run]]:
        """All trials, the latest of each config, and the runs, newest first."""
        every = self.trials(workload_id, all=True)
        return every, self.trials(workload_id), self.runs(workload_id)


class PostgresStore(SqlStore):
    """Opens the store in the address's namespace, and where there is none makes it, unless it is
    only to be read. Threads use it at once, each with a connection of its own. `folder`
    is where processes of this host take turns.
    """

    def __init__(
        self, address: PostgresAddress, *, read_only: bool = False, folder: Path | None = None
    ) -> None:
        self._address = address
        self._folder = folder
        self._read_only = read_only
        self._sql = Statements(address.namespace)
        self._view = Statements(address.namespace, promoted=address.trust == "promoted")
        self._key = None if address.signing_key is None else SigningKey.read(address.signing_key)
        self._pool = ConnectionPool(address)
        self._reader = TolerantReader(address.location)
        self._author: Author | None = None
        state = self._pool.run(self._state, one_state=False, write=False)
        if not state.version and not read_only:
            self._pool.run(
                lambda db: schema.create(db, address.namespace), one_state=False, write=True
            )
            state = self._pool.run(self._state, one_state=False, write=False)
        schema.check_usable(state, self.location, write=not read_only)
        self._schema = state
        if address.trust != "all" or address.trusted_keys is not None:
            schema.check_trust(state, self.location)

    def __repr__(self) -> str:
        return f"PostgresStore({self.location!r})"

    @property
    def location(self) -> str:
        return self._address.location

    @property
    def read_only(self) -> bool:
        return self._read_only

    @property
    def lock_folder(self) -> Path | None:
        return None if self._folder is None else self._folder / "locks"

    @property
    def models(self) -> TableModels:
        return TableModels(
            self._rows_of,
            lambda name, /, **values: self.write(lambda to: to.change(name, **values)),
        )

    @property
    def size_bytes(self) -> int | None:
        return int(self._rows_of("SIZE", namespace=self._address.namespace)[0][0])

    @property
    def key(self) -> SigningKey | None:
        """What signs entries that are written."""
        return self._key

    @classmethod
    def prepare(cls, where: str) -> tuple[int, int]:
        """Makes the store where there is none: its version before, which is 0 then, and now."""

        def work(db: Connection, namespace: str, location: str) -> tuple[int, int]:
            made = schema.create(db, namespace)
            now = schema.state_of(db, namespace).version
            return (0 if made else now), now

        return _in_transaction(parse_address(where), work)

    @classmethod
    def migrate(cls, where: str) -> tuple[int, int]:
        """Takes the store to this version's schema: from which version, to which."""
        return _in_transaction(parse_address(where), schema.migrate)

    def faults(self) -> list[str]:
        """What was met so far and cannot be used, and moments that are none, a line each."""
        return [
            *self._reader.left_out,
            *(
                str(bad_row(table, n, self.location, ValueError(f"'{column}' is {number}")))
                for table, n, column, number in self._rows_of("NOT_FINITE")
            ),
        ]

    def writers(self, workload_id: str) -> dict[str, Writer]:
        """By trial id, who wrote it."""
        rows = self._rows_of("WRITTEN_BY", workload=workload_id)
        return {id: Writer(*said) for id, *said in rows}

    def miss_writers(self) -> dict[Miss, Writer]:
        """Who recorded each missed key."""
        rows = self._rows_of("MISSED_BY")
        return {miss_of(row[:2], self.location): Writer(*row[2:]) for row in rows}

    def contributions(self) -> list[Contribution]:
        """How much each writer has brought, most first."""
        rows = self._rows_of("BY_WRITER")
        return [Contribution(Writer(*row[:4]), int(row[4]), float(row[5])) for row in rows]

    def promotion(self, workload_id: str) -> Promotion | None:
        """What production reads of this workload."""
        rows = self._rows_of("PROMOTION", workload=workload_id)
        return Promotion(workload_id, rows[0][2], rows[0][3]) if rows else None

    def everything(self, workload_id: str) -> tuple[list[Trial], list[Trial], list[Run]]:
        """All trials, the latest of each config, and the runs, newest first, of one moment."""

        def work(session: PostgresSession) -> tuple[list[Trial], list[Trial], list[Run]]:
            return session.everything(workload_id)

        return self.read(work, one_state=True)

    def change(self, name: str, /, **values: Any) -> int:
        """Runs one statement that names no writer: how many rows it changed."""
        return self.at_once(lambda session: session.change(name, **values))

    def at_once(self, work: Callable[[PostgresSession], T]) -> T:
        """What `work` makes of a session where every statement stands for itself."""
        self.refuse_if_read_only()
        return self._at_once(work)

    def read(self, work: Callable[[Any], T], *, one_state: bool = False) -> T:
        return self._pool.run(lambda db: work(self._reading(db)), one_state=one_state, write=False)

    def write(self, work: Callable[[PostgresSession], T]) -> T:
        self.refuse_if_read_only()
        if self._author is None:
            self._author = Author(self._at_once(_writer_number), self._key)
        author = self._author
        return self._pool.run(
            lambda db: work(PostgresSession(db, self._sql, self._reader, author)),
            one_state=False,
            write=True,
        )

    def sweep(self, sweep: Sweep, *, dry_run: bool) -> GcReport:
        schema.check_usable(self._schema, self.location, write=True)

        def work(session: PostgresSession) -> GcReport:
            plan = plan_of_server(session, sweep)
            if dry_run:
                return plan.report
            plan.carry_out(session)
            return replace(plan.report, dry_run=False)

        return self._at_once(work, one_state=True) if dry_run else self.write(work)

    def refuse_if_read_only(self) -> None:
        if self._read_only:
            raise read_only_error(self.location)

    def abort(self) -> None:
        """Ends what other threads wait for, as if the connection had been lost."""
        self._pool.abort()

    def close(self) -> None:
        self._pool.close()

    def _state(self, db: Connection) -> schema.SchemaState:
        return schema.state_of(db, self._address.namespace)

    def _reading(self, db: Connection) -> PostgresSession:
        """Looks at what is to be shown."""
        return PostgresSession(db, self._view, self._reader)

    def _rows_of(self, name: str, /, **values: Any) -> list[Row]:
        return self._at_once(lambda session: session.rows(name, **values))

    def _at_once(self, work: Callable[[PostgresSession], T], *, one_state: bool = False) -> T:
        """What `work` makes of all there is."""
        return self._pool.run(
            lambda db: work(PostgresSession(db, self._sql, self._reader)),
            one_state=one_state,
            write=False,
        )


def _in_transaction(address: PostgresAddress, work: Callable[[Connection, str, str], T]) -> T:
    with closing(ConnectionPool(address)) as pool:
        return pool.run(
            lambda db: work(db, address.namespace, address.location), one_state=False, write=True
        )


def _writer_number(session: PostgresSession) -> int:
    """That of this user, host and version."""
    user, host = user_and_host()
    said = {"user": user, "host": host, "whet": __version__}
    rows = session.rows("WRITER", **said)
    if not rows:
        session.change("PUT_WRITER", **said)
        rows = session.rows("WRITER", **said)
    return int(rows[0][0])


def _columns(rows: Sequence[Row], signatures: Mapping[str, str]) -> dict[str, list[Any]]:
    """The parameters of `INSERT_TRIALS`, but for the writer; it knows what stands for NULL."""
    found = {name: [row[at] for row in rows] for at, name in enumerate(TRIAL_FIELDS)}
    return {
        **found,
        "median_ns": [math.nan if one is None else one for one in found["median_ns"]],
        "limit": [one or "" for one in found["limit"]],
        "timing": [one or "" for one in found["timing"]],
        "samples": [one or b"" for one in found["samples"]],
        "created": [float(one) for one in found["created"]],
        "error": [error.encode() for error in found["error"]],
        "signature": [signatures.get(id, "") for id in found["id"]],
    }


class TableModels(Models):
    """`fetch` and `change` run the named statement. What cannot be read is not there."""

    def __init__(self, fetch: Callable[..., list[Row]], change: Callable[..., int]) -> None:
        self._fetch, self._change = fetch, change

    def __getitem__(self, name: str) -> str:
        try:
            rows = self._fetch("MODEL", name=name)
        except StoreError:
            rows = []
        if not rows:
            raise KeyError(name)
        return str(rows[0][0])

    def __setitem__(self, name: str, text: str) -> None:
        if len(text) > MOST_BYTES:
            raise OSError(errno.EFBIG, "a model of this size is not kept", name)
        try:
            self._change("PUT_MODEL", name=name, body=text)
        except StoreError as error:
            raise OSError(errno.EIO, str(error), name) from error

    def __delitem__(self, name: str) -> None:
        try:
            found = self._change("DELETE_MODEL", name=name)
        except StoreError:
            found = 0
        if not found:
            raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        try:
            rows = self._fetch("MODEL_NAMES")
        except StoreError:
            rows = []
        return iter([str(name) for (name,) in rows])

    def __len__(self) -> int:
        return sum(1 for _ in self)

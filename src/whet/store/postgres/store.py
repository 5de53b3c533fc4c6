"""`PostgresStore`: one server, many hosts. Every trial, run and miss names its writer."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from whet._version import __version__
from whet.core.errors import StoreError
from whet.core.miss import Miss
from whet.core.process import Mark, user_and_host
from whet.core.run import Run
from whet.core.shown import drawn
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.beside import MOST_BYTES
from whet.store.faults import unknown_workload
from whet.store.matching import nearest
from whet.store.merging import MergedPick, MergeReport, contents, take_missed
from whet.store.postgres import schema
from whet.store.postgres.address import PostgresAddress, parse_address
from whet.store.postgres.connections import Connection, ConnectionPool
from whet.store.postgres.faults import read_only_error
from whet.store.postgres.records import RowReader, pick_from, trial_from
from whet.store.postgres.signing import Promotion, SigningKey
from whet.store.postgres.statements import Statements
from whet.store.postgres.sweeping import swept
from whet.store.postgres.transaction import WriteTransaction
from whet.store.protocol import Match, Models, Pick, Store, StoreReader, WorkloadSummary
from whet.store.rows import (
    Row,
    bad_row,
    mark_of,
    mark_values,
    miss_of,
    timeline_of,
    workload_of,
)
from whet.store.sweeping import GcReport, Sweep

T = TypeVar("T")


class PostgresStore(Store):
    """Opens the store in the address's namespace, and where there is none makes it, unless it is
    only to be read. Threads use it at once, each with a connection of its own. `folder`
    is where processes of this host take turns.
    """

    _repr_html_ = drawn

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
        self._rows = RowReader(address.location)
        self._writer: int | None = None
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
    def statements(self) -> Statements:
        return self._sql

    @property
    def location(self) -> str:
        return self._address.location

    @property
    def read_only(self) -> bool:
        return self._read_only

    @property
    def lock_folder(self) -> Path | None:
        return None if self._folder is None else self._folder / "locks"

    def faults(self) -> list[str]:
        """What was met so far and cannot be used, and moments that are none, a line each."""
        rows = self.read(lambda db: db.execute(self._sql.NOT_FINITE).fetchall())
        return [
            *self._rows.left_out,
            *(
                str(bad_row(table, n, self.location, ValueError(f"'{column}' is {number}")))
                for table, n, column, number in rows
            ),
        ]

    @property
    def models(self) -> TableModels:
        def fetch(name: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            return self.read(lambda db: db.execute(getattr(self._sql, name), values).fetchall())

        def change(name: str, values: tuple[Any, ...]) -> int:
            return self.write(lambda to: to.db.execute(getattr(self._sql, name), values).rowcount)

        return TableModels(fetch, change)

    @property
    def size_bytes(self) -> int | None:
        rows = self.read(
            lambda db: db.execute(self._sql.SIZE, (self._address.namespace,)).fetchall()
        )
        return int(rows[0][0])

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

    def writers(self, workload_id: str) -> dict[str, Writer]:
        """By trial id, who wrote it."""
        rows = self.read(lambda db: db.execute(self._sql.WRITTEN_BY, (workload_id,)).fetchall())
        return {id: Writer(*said) for id, *said in rows}

    def miss_writers(self) -> dict[Miss, Writer]:
        """Who recorded each missed key."""
        rows = self.read(lambda db: db.execute(self._sql.MISSED_BY).fetchall())
        return {miss_of(row[:2], self.location): Writer(*row[2:]) for row in rows}

    def contributions(self) -> list[Contribution]:
        """How much each writer has brought, most first."""
        rows = self.read(lambda db: db.execute(self._sql.BY_WRITER).fetchall())
        return [Contribution(Writer(*row[:4]), int(row[4]), float(row[5])) for row in rows]

    @property
    def key(self) -> SigningKey | None:
        """What signs entries that are written."""
        return self._key

    def promotion(self, workload_id: str) -> Promotion | None:
        """What production reads of this workload."""
        here = {"workload": workload_id}
        row = self.read(lambda db: db.execute(self._sql.PROMOTION, here).fetchone())
        return None if row is None else Promotion(workload_id, row[2], row[3])

    def change(self, name: str, values: Mapping[str, Any] | Sequence[Any]) -> int:
        """Runs one statement that names no writer: how many rows it changed."""
        text = getattr(self._sql, name)
        return self.at_once(lambda db: db.execute(text, values).rowcount)

    def at_once(self, work: Callable[[Connection], T]) -> T:
        """What `work` makes of a connection where every statement stands for itself."""
        if self._read_only:
            raise read_only_error(self.location)
        return self._pool.run(work, one_state=False, write=False)

    def put_workload(self, workload: Workload) -> None:
        self.write(lambda to: to.put_workload(workload))

    def append(self, trials: Iterable[Trial]) -> int:
        batch = list(trials)
        return self.write(lambda to: to.append(batch)) if batch else 0

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        statement = self._view.ALL_TRIALS if all else self._view.LATEST_TRIALS
        rows = self.read(lambda db: db.execute(statement, {"workload": workload_id}).fetchall())
        return self._rows.trials(rows, workload_id)

    def everything(self, workload_id: str) -> tuple[list[Trial], list[Trial], list[Run]]:
        """All trials, the latest of each config, and the runs, newest first, of one moment."""
        here = {"workload": workload_id}

        def work(db: Connection) -> tuple[list[Trial], list[Trial], list[Run]]:
            every, latest = (
                self._rows.trials(db.execute(text, here), workload_id)
                for text in (self._view.ALL_TRIALS, self._view.LATEST_TRIALS)
            )
            runs = db.execute(self._view.RUNS, (workload_id,)).fetchall()
            return every, latest, self._rows.runs(runs)

        return self.read(work, one_state=True)

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        asked = {"workload": workload_id, "config": config_id}
        row = self.read(lambda db: db.execute(self._view.LATEST_TRIAL, asked).fetchone())
        return self._rows.one(row, lambda row, at: trial_from(row, workload_id, at))

    def best(self, workload_id: str) -> Trial | None:
        found = self.pick(workload_id)
        return None if found is None else found.trial

    def pick(self, workload_id: str) -> Pick | None:
        return self.read(lambda db: pick_from(db, self._view, workload_id, self._rows))

    def save_run(self, run: Run) -> None:
        self.write(lambda to: to.save_run(run, to.sign(run)))

    def runs(self, workload_id: str) -> list[Run]:
        rows = self.read(lambda db: db.execute(self._view.RUNS, (workload_id,)).fetchall())
        return self._rows.runs(rows)

    def run(self, run_id: str) -> Run | None:
        rows = self.read(lambda db: db.execute(self._view.RUN, (run_id,)).fetchall())
        found = self._rows.runs(rows)
        return found[0] if found else None

    def save_timeline(self, run_id: str, timeline: Timeline) -> None:
        self.write(lambda to: to.save_timeline(run_id, timeline))

    def timeline(self, run_id: str) -> Timeline | None:
        row = self.read(lambda db: db.execute(self._view.TIMELINE, (run_id,)).fetchone())
        return self._rows.one(row, lambda row, at: timeline_of((row[0], bytes(row[1])), at))

    def miss(self, miss: Miss) -> bool:
        return self.write(lambda to: to.miss(miss))

    def missed(self, kernel: str | None = None, *, tuned: bool = False) -> list[Miss]:
        asked = {"kernel": kernel, "tuned": tuned}
        rows = self.read(lambda db: db.execute(self._sql.MISSED, asked).fetchall())
        return self._rows.each(rows, miss_of)

    def forget_missed(self, workload_ids: Iterable[str]) -> int:
        ids = list(workload_ids)
        return self.write(lambda to: to.forget_missed(ids))

    def mark(self, mark: Mark) -> None:
        run_id, workload_id, body = mark_values(mark)
        values = {"run": run_id, "workload": workload_id, "body": body}

        def work(to: WriteTransaction) -> None:
            if to.db.execute(self._sql.WORKLOAD, (workload_id,)).fetchone() is None:
                raise unknown_workload(workload_id, self.location)
            to.db.execute(self._sql.PUT_MARK, values)

        self.write(work)

    def unmark(self, run_id: str) -> None:
        self.write(lambda to: to.db.execute(self._sql.DELETE_MARK, (run_id,)))

    def marks(self, workload_id: str) -> list[Mark]:
        asked = {"workload": workload_id}
        rows = self.read(lambda db: db.execute(self._sql.MARKS, asked).fetchall())
        return self._rows.each(rows, mark_of)

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        def work(db: Connection) -> list[WorkloadSummary]:
            rows = db.execute(self._view.SUMMARIES, {"kernel": kernel}).fetchall()
            read = self._rows.each(rows, lambda row, at: (workload_of(row[:3], at), row[3:]))
            return [self._summary(db, workload, counts) for workload, counts in read]

        return self.read(work, one_state=True)

    def workload(self, workload_id: str) -> Workload | None:
        row = self.read(lambda db: db.execute(self._view.WORKLOAD, (workload_id,)).fetchone())
        return self._rows.one(row, workload_of)

    def match(self, workload: Workload) -> Match | None:
        def work(db: Connection) -> Match | None:
            row = db.execute(self._view.WORKLOAD, (workload.id,)).fetchone()
            same = self._rows.one(row, workload_of)
            if same is not None:
                return Match("strict", same)
            rows = db.execute(self._view.WORKLOADS_WITH_OK, (workload.kernel,)).fetchall()
            return nearest(workload, self._rows.each(rows, workload_of))

        return self.read(work, one_state=True)

    def gc(
        self,
        *,
        older_than_s: float | None = None,
        superseded: bool = False,
        kernel: str | None = None,
        workloads: Collection[str] | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
    ) -> GcReport:
        schema.check_usable(self._schema, self.location, write=True)
        sweep = Sweep.of(older_than_s, superseded, kernel, workloads, max_bytes)
        if dry_run:
            return self.read(lambda db: swept(db, self._sql, sweep, dry_run=True), one_state=True)
        return self.write(lambda to: swept(to.db, self._sql, sweep, dry_run=False))

    def merge(self, other: StoreReader) -> MergeReport:
        if self._read_only:
            raise read_only_error(self.location)
        workloads = trials = runs = 0
        picks: list[MergedPick] = []
        for part in contents(other):
            new, told = self.write(partial(WriteTransaction.take, part=part))
            workloads, trials, runs = workloads + new[0], trials + new[1], runs + new[2]
            picks += told
        take_missed(self, other)
        return MergeReport(trials, runs, workloads, tuple(picks))

    def abort(self) -> None:
        """Ends what other threads wait for, as if the connection had been lost."""
        self._pool.abort()

    def close(self) -> None:
        self._pool.close()

    def _state(self, db: Connection) -> schema.SchemaState:
        return schema.state_of(db, self._address.namespace)

    def read(self, work: Callable[[Connection], T], *, one_state: bool = False) -> T:
        """What `work` makes of a connection."""
        return self._pool.run(work, one_state=one_state, write=False)

    def write(self, work: Callable[[WriteTransaction], T]) -> T:
        """What `work` makes of one transaction."""
        if self._read_only:
            raise read_only_error(self.location)
        if self._writer is None:
            self._writer = self._pool.run(self._known_writer, one_state=False, write=False)
        writer, sql, rows, key = self._writer, self._sql, self._rows, self._key
        return self._pool.run(
            lambda db: work(WriteTransaction(db, sql, writer, rows, key)),
            one_state=False,
            write=True,
        )

    def _known_writer(self, db: Connection) -> int:
        said = this_writer()
        row = db.execute(self._sql.WRITER, said).fetchone()
        if row is None:
            db.execute(self._sql.PUT_WRITER, said)
            row = db.execute(self._sql.WRITER, said).fetchone()
        assert row is not None
        return int(row[0])

    def _summary(self, db: Connection, workload: Workload, counts: Row) -> WorkloadSummary:
        trials, configs, ok, active = counts
        pick = pick_from(db, self._view, workload.id, self._rows)
        if pick is None:
            return WorkloadSummary(workload, trials, configs, ok, active, None)
        return WorkloadSummary(workload, trials, configs, ok, active, pick.trial, pick.rivals)


def _in_transaction(address: PostgresAddress, work: Callable[[Connection, str, str], T]) -> T:
    with closing(ConnectionPool(address)) as pool:
        return pool.run(
            lambda db: work(db, address.namespace, address.location), one_state=False, write=True
        )


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


def this_writer() -> tuple[str, str, str]:
    """The user, host and version of this process."""
    return *user_and_host(), __version__


Fetch = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
Change = Callable[[str, tuple[Any, ...]], int]


class TableModels(Models):
    """`fetch` and `change` run the named statement. What cannot be read is not there."""

    def __init__(self, fetch: Fetch, change: Change) -> None:
        self._fetch, self._change = fetch, change

    def __getitem__(self, name: str) -> str:
        try:
            rows = self._fetch("MODEL", (name,))
        except StoreError:
            rows = []
        if not rows:
            raise KeyError(name)
        return str(rows[0][0])

    def __setitem__(self, name: str, text: str) -> None:
        if len(text) > MOST_BYTES:
            raise OSError(errno.EFBIG, "a model of this size is not kept", name)
        try:
            self._change("PUT_MODEL", (name, text))
        except StoreError as error:
            raise OSError(errno.EIO, str(error), name) from error

    def __delitem__(self, name: str) -> None:
        try:
            found = self._change("DELETE_MODEL", (name,))
        except StoreError:
            found = 0
        if not found:
            raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        try:
            rows = self._fetch("MODEL_NAMES", ())
        except StoreError:
            rows = []
        return iter([str(name) for (name,) in rows])

    def __len__(self) -> int:
        return sum(1 for _ in self)

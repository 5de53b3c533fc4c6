"""Looking after a store: made, migrated, checked and counted, whatever it is kept in."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whet.core.errors import StoreError, UsageError
from whet.core.frozen import FrozenMap
from whet.store.connecting import SCHEMA_VERSION, stored_version
from whet.store.opening import is_missing, open_store, store_place
from whet.store.protocol import StoreReader
from whet.store.sql import SqliteStore

if TYPE_CHECKING:
    from whet.store.postgres.store import Contribution, PostgresStore


@dataclass(frozen=True)
class SchemaChange:
    """`before` is 0 where there was no store; both are None for stores that have no versions."""

    location: str
    before: int | None
    now: int | None


@dataclass(frozen=True)
class StoreCounts:
    """`kernels` and `devices` count workloads; `writers` is empty where nobody signs."""

    location: str
    trials: int
    runs: int
    missed: int
    size_bytes: int | None
    kernels: FrozenMap[int]
    devices: FrozenMap[int]
    writers: tuple[Contribution, ...] = ()

    @property
    def workloads(self) -> int:
        return sum(self.kernels.values())


def init_store(where: str | None) -> SchemaChange:
    """Makes the store where there is none; one of an older version stays as it is."""
    place = store_place(where)
    if "://" not in place:
        before = _file_version(place)
        if before == 0:
            open_store(where).close()
        return SchemaChange(place, before, _file_version(place))
    if not _is_shared(place):
        open_store(where).close()
        return SchemaChange(place, None, None)
    from whet.store.postgres.store import PostgresStore

    return SchemaChange(place, *PostgresStore.prepare(where or os.environ["WHET_STORE"]))


def migrate_store(where: str | None) -> SchemaChange:
    """Takes the store to the schema of this version. `StoreError` where there is none."""
    place = store_place(where)
    if _is_shared(place):
        from whet.store.postgres.store import PostgresStore

        return SchemaChange(place, *PostgresStore.migrate(where or os.environ["WHET_STORE"]))
    if is_missing(where):
        raise StoreError(f"no store at {place} yet; create it with 'whet store init'")
    before = None if "://" in place else _file_version(place)
    open_store(where).close()
    return SchemaChange(place, before, None if before is None else _file_version(place))


def grant_role(where: str | None, level: str, role: str) -> str:
    """Lets a role of the database use the store; returns the store's location."""
    place = shared_place(where, "roles")
    from whet.store.postgres.address import parse_address
    from whet.store.postgres.schema import grant

    grant(parse_address(where or os.environ["WHET_STORE"]), level, role)
    return place


def promotable(where: str | None) -> PostgresStore:
    """The store, for promotions to be made in it. It is read whole even where the settings say that
    only what was promoted is to be used."""
    from dataclasses import replace

    from whet.store.postgres.address import parse_address
    from whet.store.postgres.verified import open_direct

    place = shared_place(where, "promotions")
    return open_direct(replace(parse_address(place), trust="all"))


def revoke_key(where: str | None, key_id: str, reason: str) -> bool:
    """Whether the key was not revoked before: no reader takes what it has signed any more."""
    shared_place(where, "keys")
    with promotable(where) as store:
        return store.change("REVOKE_KEY", key=key_id, reason=reason) > 0


def faults_in(store: StoreReader) -> Iterator[str]:
    """Reads every row, and says what is wrong with it. Rows that hang together are compared: what
    a run chose has to be among the trials. What the store itself knows to be wrong comes last."""
    if isinstance(store, SqliteStore):
        yield from _file_faults(store.location)
    try:
        known = store.workloads()
    except StoreError as error:
        yield str(error)
        return
    for one in known:
        id_ = one.workload.id
        try:
            tried = {trial.config.id for trial in store.trials(id_, all=True)}
            store.pick(id_)
            for run in store.runs(id_):
                store.timeline(run.id)
                if run.chose and run.best is not None and run.best.id not in tried:
                    yield f"run {run.id} of {one.workload.kernel} chose a config without a trial"
        except StoreError as error:
            yield str(error)
    try:
        store.missed(tuned=True)
        yield from getattr(store, "faults", list)()
    except StoreError as error:
        yield str(error)


def counts_of(store: StoreReader) -> StoreCounts:
    known = store.workloads()
    kernels = Counter(one.workload.kernel for one in known)
    devices = Counter(one.workload.device.name for one in known)
    contributions = getattr(store, "contributions", None)
    return StoreCounts(
        location=store.location,
        trials=sum(one.trials for one in known),
        runs=sum(len(store.runs(one.workload.id)) for one in known),
        missed=len(store.missed()),
        size_bytes=store.size_bytes,
        kernels=FrozenMap(dict(kernels.most_common())),
        devices=FrozenMap(dict(devices.most_common())),
        writers=() if contributions is None else tuple(contributions()),
    )


def shared_place(where: str | None, what: str) -> str:
    place = store_place(where)
    if not _is_shared(place):
        raise UsageError(f"store {place} has no {what}; use a store on a server, postgresql://…")
    return place


def _is_shared(place: str) -> bool:
    return place.lower().startswith(("postgresql://", "postgres://"))


def _file_version(place: str) -> int:
    if place == ":memory:" or not os.path.exists(place):
        return SCHEMA_VERSION if place == ":memory:" else 0
    with closing(sqlite3.connect(f"{Path(place).as_uri()}?mode=ro", uri=True)) as db:
        return stored_version(db)


def _file_faults(place: str) -> Iterator[str]:
    with closing(sqlite3.connect(f"{Path(place).as_uri()}?mode=ro", uri=True)) as db:
        for (said,) in db.execute("PRAGMA integrity_check(20)"):
            if said != "ok":
                yield f"store {place} is damaged: {said}"

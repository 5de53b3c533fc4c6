"""The tables of a namespace, made and migrated under a lock of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whet.core.errors import StoreError
from whet.store.postgres.migrations import TO_2, TO_3

if TYPE_CHECKING:
    from whet.store.postgres.connections import Connection

SCHEMA_VERSION = 3

# The oldest schema version whose clients can still use what this version writes.
OLDEST_CLIENT = 1

# In one statement each with `{s}` for the namespace. Errors are bytes, since a compiler's output
# may hold NUL, which is no text to PostgreSQL.
_TABLES = (
    "CREATE SCHEMA IF NOT EXISTS {s}",
    """
    CREATE TABLE {s}.versions (
      version       integer NOT NULL,
      oldest_client integer NOT NULL,
      made          timestamptz NOT NULL DEFAULT now()
    )""",
    """
    CREATE TABLE {s}.writers (
      n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      role        text NOT NULL DEFAULT session_user,
      os_user     text NOT NULL,
      host        text NOT NULL,
      whet        text NOT NULL,
      UNIQUE (role, os_user, host, whet)
    )""",
    """
    CREATE TABLE {s}.workloads (
      n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      id          text NOT NULL UNIQUE,
      kernel      text NOT NULL,
      added       double precision NOT NULL,
      active      double precision,
      body        text NOT NULL
    )""",
    "CREATE INDEX workloads_by_kernel ON {s}.workloads (kernel)",
    """
    CREATE TABLE {s}.trials (
      n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      id          text NOT NULL,
      workload    bigint NOT NULL REFERENCES {s}.workloads ON DELETE CASCADE,
      config_id   text NOT NULL,
      status      text NOT NULL,
      median_ns   double precision,
      created     double precision NOT NULL,
      run_id      text NOT NULL,
      config      text NOT NULL,
      cost        text NOT NULL,
      facts       text NOT NULL,
      "limit"     text,
      timing      text,
      samples     bytea,
      error       bytea NOT NULL,
      writer      bigint NOT NULL REFERENCES {s}.writers,
      UNIQUE (workload, id)
    )""",
    """
    CREATE TABLE {s}.latest (
      workload    bigint NOT NULL REFERENCES {s}.workloads ON DELETE CASCADE,
      config_id   text NOT NULL,
      first       bigint NOT NULL,
      trial       bigint NOT NULL,
      ok          boolean NOT NULL,
      median_ns   double precision,
      PRIMARY KEY (workload, config_id)
    )""",
    "CREATE INDEX latest_by_median ON {s}.latest (workload, median_ns, first) WHERE ok",
    """
    CREATE TABLE {s}.runs (
      n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      id          text NOT NULL UNIQUE,
      workload    bigint NOT NULL REFERENCES {s}.workloads ON DELETE CASCADE,
      started     double precision NOT NULL,
      outcome     text NOT NULL,
      best_id     text,
      taken       boolean NOT NULL,
      body        text NOT NULL,
      writer      bigint NOT NULL REFERENCES {s}.writers
    )""",
    "CREATE INDEX runs_by_start ON {s}.runs (workload, started, n)",
    """
    CREATE TABLE {s}.timelines (
      run         bigint PRIMARY KEY REFERENCES {s}.runs ON DELETE CASCADE,
      body        bytea NOT NULL
    )""",
    """
    CREATE TABLE {s}.missed (
      n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      id          text NOT NULL UNIQUE,
      kernel      text NOT NULL,
      at          double precision NOT NULL,
      body        text NOT NULL,
      writer      bigint NOT NULL REFERENCES {s}.writers
    )""",
    """
    CREATE TABLE {s}.marks (
      n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      run_id      text NOT NULL UNIQUE,
      workload    bigint NOT NULL REFERENCES {s}.workloads ON DELETE CASCADE,
      body        text NOT NULL
    )""",
    "CREATE INDEX marks_by_workload ON {s}.marks (workload)",
    """
    CREATE TABLE {s}.picks (
      workload    bigint PRIMARY KEY REFERENCES {s}.workloads ON DELETE CASCADE,
      trial       bigint NOT NULL,
      rivals      bigint[] NOT NULL,
      kept        bigint[] NOT NULL
    )""",
    # A lease that has ended stays, for its token: what comes with an older one comes too late.
    "CREATE SEQUENCE {s}.tokens",
    """
    CREATE TABLE {s}.leases (
      id          text PRIMARY KEY,
      token       bigint NOT NULL,
      process     text NOT NULL,
      since       timestamptz NOT NULL,
      until       timestamptz NOT NULL
    )""",
    "CREATE TABLE {s}.models (name text PRIMARY KEY, body text NOT NULL)",
)

# By the version that a step starts from. Steps only add, as long as older clients are in use.
STEPS: dict[int, Callable[[Connection, str], None]] = {
    1: lambda db, name: _all(db, TO_2, name),
    2: lambda db, name: _all(db, TO_3, name),
}


@dataclass(frozen=True)
class SchemaState:
    """What a namespace holds; both are 0 where there is no store."""

    version: int = 0
    oldest_client: int = 0


# Not `to_regclass`, which remembers that there was nothing.
_IS_THERE = """
SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'versions'
"""


def state_of(db: Connection, namespace: str) -> SchemaState:
    if db.execute(_IS_THERE, (namespace,)).fetchone() is None:
        return SchemaState()
    row = db.execute(
        f"SELECT version, oldest_client FROM {namespace}.versions ORDER BY version DESC LIMIT 1"
    ).fetchone()
    return SchemaState() if row is None else SchemaState(*row)


def create(db: Connection, namespace: str) -> bool:
    """Whether there was nothing before. All or nothing, in the caller's transaction."""
    _shut_others_out(db, namespace)
    if state_of(db, namespace).version:
        return False
    _all(db, _TABLES, namespace)
    for version in range(1, SCHEMA_VERSION):
        STEPS[version](db, namespace)
    _write_version(db, namespace, SCHEMA_VERSION)
    return True


def migrate(db: Connection, namespace: str, location: str) -> tuple[int, int]:
    """From which version to which; in the caller's transaction."""
    _shut_others_out(db, namespace)
    state = state_of(db, namespace)
    check_usable(state, location, write=False)
    version = state.version
    while version < SCHEMA_VERSION:
        STEPS[version](db, namespace)
        version += 1
        _write_version(db, namespace, version)
    return state.version, version


def check_usable(state: SchemaState, location: str, *, write: bool) -> None:
    """Raises `StoreError`, in one line that says what to do."""
    if not state.version:
        raise StoreError(f"no whet store at {location} yet; create it with 'whet store init'")
    if state.oldest_client > SCHEMA_VERSION:
        raise StoreError(
            f"store {location} has schema version {state.version}, which needs a whet for version "
            f"{state.oldest_client} or later, and this one is for {SCHEMA_VERSION}; upgrade whet"
        )
    if write and state.version < SCHEMA_VERSION:
        raise StoreError(
            f"store {location} has schema version {state.version}, and this whet writes version "
            f"{SCHEMA_VERSION}; run 'whet store init --upgrade --store {location}'"
        )


def check_trust(state: SchemaState, location: str) -> None:
    """Raises `StoreError` where nothing can be promoted or signed yet."""
    if state.version < 2:
        raise StoreError(
            f"store {location} has schema version {state.version}, which knows no promotions and "
            f"signatures; run 'whet store init --upgrade --store {location}'"
        )


def _all(db: Connection, statements: Iterable[str], namespace: str) -> None:
    """In one message: each of its own would take as long again to go there and back."""
    db.execute(";".join(statements).replace("{s}", namespace))


def _shut_others_out(db: Connection, namespace: str) -> None:
    """Until the transaction ends, which a pooler in between cannot lose."""
    db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"whet {namespace}",))


def _write_version(db: Connection, namespace: str, version: int) -> None:
    db.execute(
        f"INSERT INTO {namespace}.versions (version, oldest_client) VALUES (%s, %s)",
        (version, OLDEST_CLIENT),
    )

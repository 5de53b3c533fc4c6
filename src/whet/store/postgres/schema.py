"""The tables of a namespace, made and migrated under a lock of the database, and who may do what.

A reader only reads. A contributor appends: it cannot change or remove a trial or a run that has
ended, nor another role's run, lease or timeline, nor write in another role's name. A promoter
reads, promotes and revokes keys. Whoever made the store may do everything, `gc` and `migrate`
among it. These are rights of the database, which no client can get around.

What grants cannot say is refused by triggers, and not by taking rights away: so a client of an
older version goes on as before. Their functions run with the owner's rights and ask who logged in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from psycopg import sql

from whet.core.errors import StoreError, UsageError
from whet.store.postgres.address import PostgresAddress
from whet.store.postgres.connections import Connection, ConnectionPool

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

# Steps from one version to the next.
_FUNCTION = """
CREATE OR REPLACE FUNCTION {{s}}.{name}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  {body}
END $$"""

# Whoever has the owner's rights, `gc` and `migrate` among them, is not watched.
_IS_OWNER = """
pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER')
"""
_REFUSE = "RAISE insufficient_privilege USING MESSAGE ="


def _function(name: str, body: str) -> str:
    return _FUNCTION.format(name=name, body=body.strip())


def _before(event: str, table: str, name: str) -> str:
    return (
        f"CREATE TRIGGER {name} BEFORE {event} ON {{s}}.{table} "
        f"FOR EACH ROW EXECUTE FUNCTION {{s}}.{name}()"
    )


def _after(event: str, table: str, name: str) -> str:
    return (
        f"CREATE TRIGGER {name}_{event.lower()} AFTER {event} ON {{s}}.{table} "
        f"REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION {{s}}.{name}()"
    )


_WRITER_IS_SELF = _function(
    "check_writer",
    f"""
  IF (SELECT role FROM {{s}}.writers WHERE n = NEW.writer) IS DISTINCT FROM session_user THEN
    {_REFUSE} format('role %s cannot write in the name of another role', session_user);
  END IF;
  RETURN NEW;
""",
)
_WRITERS_ARE_SELF = _function(
    "check_writers",
    f"""
  IF EXISTS (SELECT 1 FROM (SELECT DISTINCT writer FROM fresh) f
             JOIN {{s}}.writers w ON w.n = f.writer WHERE w.role <> session_user) THEN
    {_REFUSE} format('role %s cannot write in the name of another role', session_user);
  END IF;
  RETURN NULL;
""",
)
# A run that has ended is what it is; it may be sent once more.
_RUN_STAYS = _function(
    "keep_runs",
    f"""
  IF {_IS_OWNER.strip()} THEN RETURN NEW; END IF;
  IF (SELECT role FROM {{s}}.writers WHERE n = OLD.writer) IS DISTINCT FROM session_user THEN
    {_REFUSE} format('run %s belongs to another role than %s', OLD.id, session_user);
  END IF;
  IF OLD.outcome <> 'running' AND OLD.body = NEW.body THEN RETURN NULL; END IF;
  IF OLD.outcome <> 'running' THEN
    {_REFUSE} format('run %s has ended and cannot be changed', OLD.id);
  END IF;
  IF (NEW.n, NEW.id, NEW.workload, NEW.writer) IS DISTINCT FROM
     (OLD.n, OLD.id, OLD.workload, OLD.writer) THEN
    {_REFUSE} format('run %s cannot be moved', OLD.id);
  END IF;
  RETURN NEW;
""",
)
_TIMELINE_STAYS = _function(
    "keep_timelines",
    f"""
  IF {_IS_OWNER.strip()} THEN RETURN NEW; END IF;
  IF (SELECT w.role FROM {{s}}.runs r JOIN {{s}}.writers w ON w.n = r.writer WHERE r.n = NEW.run)
     IS DISTINCT FROM session_user THEN
    {_REFUSE} format('a timeline of another role''s run cannot be written by %s', session_user);
  END IF;
  RETURN NEW;
""",
)
# A body is the same text but for its last entry, the origin, and that is what a reader takes for
# one: else who may add results could make a workload unreadable for everybody.
_WORKLOAD_STAYS = _function(
    "keep_workloads",
    f"""
  IF {_IS_OWNER.strip()} THEN RETURN NEW; END IF;
  IF (NEW.n, NEW.id, NEW.kernel, NEW.added) IS DISTINCT FROM
     (OLD.n, OLD.id, OLD.kernel, OLD.added) THEN
    {_REFUSE} format('workload %s cannot be changed', OLD.id);
  END IF;
  IF NEW.body = OLD.body THEN RETURN NEW; END IF;
  DECLARE
    label text := ',"origin":';
    tail text := coalesce(label || (OLD.body::json -> 'origin'), '') || '}}';
    head text := left(OLD.body, -length(tail));
    origin json := NEW.body::json -> 'origin';
  BEGIN
    IF OLD.body <> head || tail
       OR NEW.body IS DISTINCT FROM head || label || origin || '}}' THEN
      {_REFUSE} format('workload %s cannot be changed', OLD.id);
    END IF;
    IF json_typeof(origin) <> 'object'
       OR (SELECT array_agg(key || ' ' || json_typeof(value) ORDER BY key) FROM json_each(origin))
          IS DISTINCT FROM ARRAY['captured object', 'code string', 'places array']
       OR EXISTS (SELECT FROM json_each(origin -> 'captured') WHERE json_typeof(value) <> 'string')
       OR EXISTS (SELECT FROM json_array_elements(origin -> 'places') AS place
                  WHERE json_typeof(place) <> 'string') THEN
      {_REFUSE} format('the origin of workload %s is not valid', OLD.id);
    END IF;
  END;
  RETURN NEW;
""",
)
# `latest` and `picks` only point to trials: each to one of its own workload and config.
_LATEST_IS_TRUE = _function(
    "check_latest",
    f"""
  IF EXISTS (SELECT 1 FROM fresh f LEFT JOIN {{s}}.trials t ON t.n = f.trial
             WHERE (t.workload, t.config_id, t.status = 'ok', t.median_ns) IS DISTINCT FROM
                   (f.workload, f.config_id, f.ok, f.median_ns)) THEN
    {_REFUSE} 'the latest trial of a config has to be one of its own trials';
  END IF;
  RETURN NULL;
""",
)
_PICK_IS_TRUE = _function(
    "check_picks",
    f"""
  IF NOT EXISTS (SELECT 1 FROM {{s}}.trials t
                 WHERE t.n = NEW.trial AND t.workload = NEW.workload AND t.status = 'ok') THEN
    {_REFUSE} 'a pick has to be a working trial of its workload';
  END IF;
  RETURN NEW;
""",
)
# Tokens come from the sequence, so that nobody takes one that no other can exceed. Holders renew
# theirs every few seconds: one that is held for longer would have others wait for nobody.
_LEASE_IS_KEPT = _function(
    "keep_leases",
    f"""
  IF TG_OP = 'UPDATE' THEN
    IF OLD.role NOT IN (session_user, '') AND OLD.until > clock_timestamp()
       AND NOT {_IS_OWNER.strip()} THEN
      {_REFUSE} format('the lease of %s belongs to another role', OLD.id);
    END IF;
    IF NEW.token < OLD.token OR NEW.id <> OLD.id THEN
      {_REFUSE} format('the token of the lease of %s only grows', OLD.id);
    END IF;
  END IF;
  IF NEW.token > (SELECT last_value FROM {{s}}.tokens) THEN
    {_REFUSE} format('the lease of %s needs a token of the sequence', NEW.id);
  END IF;
  NEW.role := session_user;
  NEW.until := least(NEW.until, clock_timestamp() + interval '1 minute');
  RETURN NEW;
""",
)
# All that was measured until then by whoever made the run, and nothing that comes later.
_PROMOTION_IS_TRUE = _function(
    "check_promotions",
    f"""
  NEW.role := session_user;
  NEW.at := clock_timestamp();
  IF NEW.run IS NULL AND NEW.trial IS NULL THEN RETURN NEW; END IF;
  IF NOT EXISTS (SELECT 1 FROM {{s}}.runs r JOIN {{s}}.trials t ON t.n = NEW.trial
                 WHERE r.id = NEW.run AND r.workload = NEW.workload AND r.outcome = 'finished'
                   AND t.workload = NEW.workload AND t.config_id = r.best_id
                   AND t.status = 'ok') THEN
    {_REFUSE} 'only the choice of a finished run can be promoted';
  END IF;
  NEW.upto := (SELECT max(n) FROM {{s}}.trials WHERE workload = NEW.workload);
  RETURN NEW;
""",
)

_PROMOTIONS = (
    """
    CREATE TABLE {s}.promotions (
      n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      workload    bigint NOT NULL REFERENCES {s}.workloads ON DELETE CASCADE,
      run         text,
      trial       bigint,
      upto        bigint,
      note        text NOT NULL DEFAULT '',
      signature   text,
      role        text NOT NULL DEFAULT session_user,
      at          timestamptz NOT NULL DEFAULT clock_timestamp()
    )""",
    "CREATE INDEX promotions_by_workload ON {s}.promotions (workload, n DESC)",
    # The last one counts; one without a run takes the workload back.
    """
    CREATE VIEW {s}.promoted AS SELECT * FROM (
      SELECT DISTINCT ON (workload) * FROM {s}.promotions ORDER BY workload, n DESC
    ) last WHERE run IS NOT NULL""",
    """
    CREATE VIEW {s}.promoted_workloads AS SELECT w.* FROM {s}.workloads w
    WHERE EXISTS (SELECT 1 FROM {s}.promoted p WHERE p.workload = w.n)""",
    """
    CREATE VIEW {s}.promoted_runs AS SELECT r.* FROM {s}.runs r
    JOIN {s}.promoted p ON p.workload = r.workload AND p.run = r.id""",
    """
    CREATE VIEW {s}.promoted_trials AS SELECT t.* FROM {s}.promoted p
    JOIN {s}.trials t ON t.workload = p.workload AND t.n <= p.upto
    WHERE t.n = p.trial OR (t.run_id = p.run AND (
      SELECT mine.role = theirs.role FROM {s}.runs r
      JOIN {s}.writers mine ON mine.n = r.writer JOIN {s}.writers theirs ON theirs.n = t.writer
      WHERE r.id = p.run))""",
    """
    CREATE VIEW {s}.promoted_latest AS
    SELECT DISTINCT ON (workload, config_id) workload, config_id, n AS first, n AS trial,
      status = 'ok' AS ok, median_ns
    FROM {s}.promoted_trials ORDER BY workload, config_id, n DESC""",
    """
    CREATE VIEW {s}.promoted_picks AS
    SELECT workload, trial, ARRAY[]::bigint[] AS rivals, ARRAY[trial] AS kept FROM {s}.promoted""",
)
_KEYS = (
    "ALTER TABLE {s}.trials ADD COLUMN signature text",
    "ALTER TABLE {s}.runs ADD COLUMN signature text",
    """
    CREATE TABLE {s}.revoked_keys (
      id          text PRIMARY KEY,
      reason      text NOT NULL,
      role        text NOT NULL DEFAULT session_user,
      at          timestamptz NOT NULL DEFAULT clock_timestamp()
    )""",
)
# Who can read one table of a store can read all of it.
_SAME_READERS = """
DO $$ DECLARE reader text; BEGIN
  FOR reader IN SELECT DISTINCT grantee::regrole::text FROM pg_class c, aclexplode(c.relacl)
                WHERE c.oid = '{s}.trials'::regclass AND privilege_type = 'SELECT' AND grantee <> 0
  LOOP
    EXECUTE 'GRANT SELECT ON ALL TABLES IN SCHEMA {s} TO ' || reader;
  END LOOP;
END $$"""

TO_2 = (
    *_KEYS,
    # Nobody knows whose the leases of before are.
    "ALTER TABLE {s}.leases ADD COLUMN role text NOT NULL DEFAULT ''",
    "ALTER TABLE {s}.leases ALTER COLUMN role SET DEFAULT session_user",
    *_PROMOTIONS,
    _WRITER_IS_SELF,
    _WRITERS_ARE_SELF,
    _RUN_STAYS,
    _TIMELINE_STAYS,
    _WORKLOAD_STAYS,
    _LATEST_IS_TRUE,
    _PICK_IS_TRUE,
    _LEASE_IS_KEPT,
    _PROMOTION_IS_TRUE,
    _before("INSERT", "runs", "check_writer"),
    _before("INSERT", "missed", "check_writer"),
    _after("INSERT", "trials", "check_writers"),
    _before("UPDATE", "runs", "keep_runs"),
    _before("INSERT OR UPDATE", "timelines", "keep_timelines"),
    _before("UPDATE", "workloads", "keep_workloads"),
    _after("INSERT", "latest", "check_latest"),
    _after("UPDATE", "latest", "check_latest"),
    _before("INSERT OR UPDATE", "picks", "check_picks"),
    _before("INSERT OR UPDATE", "leases", "keep_leases"),
    _before("INSERT", "promotions", "check_promotions"),
    _SAME_READERS,
)
TO_3 = (_WORKLOAD_STAYS, _LEASE_IS_KEPT)

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


FleetRole = Literal["reader", "contributor", "promoter"]

_READ = (
    "GRANT USAGE ON SCHEMA {s} TO {role}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA {s} TO {role}",
)
# A writer's role is what the database says it is: that column is filled in by default.
_CONTRIBUTE = (
    "GRANT INSERT (os_user, host, whet) ON {s}.writers TO {role}",
    "GRANT INSERT ON {s}.trials TO {role}",
    "GRANT INSERT, UPDATE ON {s}.workloads, {s}.latest, {s}.runs, {s}.timelines, {s}.models "
    "TO {role}",
    "GRANT INSERT (id, token, process, since, until), UPDATE (token, process, since, until) "
    "ON {s}.leases TO {role}",
    "GRANT INSERT, DELETE ON {s}.missed TO {role}",
    "GRANT INSERT, UPDATE, DELETE ON {s}.marks, {s}.picks TO {role}",
    "GRANT USAGE ON SEQUENCE {s}.tokens TO {role}",
)
_PROMOTE = (
    "GRANT INSERT (workload, run, trial, note, signature) ON {s}.promotions TO {role}",
    "GRANT INSERT (id, reason) ON {s}.revoked_keys TO {role}",
)
_MORE = {"contributor": _CONTRIBUTE, "promoter": _PROMOTE}


def grant(address: PostgresAddress, level: str, role: str) -> None:
    """Takes back what the role had in this namespace, and gives it what the level has."""
    if level not in get_args(FleetRole):
        *most, last = get_args(FleetRole)
        raise UsageError(f"'{level}' is not valid; use {', '.join(most)} or {last}")
    statements = [
        "REVOKE ALL ON ALL TABLES IN SCHEMA {s} FROM {role}",
        "REVOKE ALL ON ALL SEQUENCES IN SCHEMA {s} FROM {role}",
        "REVOKE ALL ON SCHEMA {s} FROM {role}",
        *_READ,
        *_MORE.get(level, ()),
    ]
    names = {"s": sql.Identifier(address.namespace), "role": sql.Identifier(role)}

    def work(db: Connection) -> None:
        for statement in statements:
            db.execute(sql.SQL(statement).format(**names))

    pool = ConnectionPool(address)
    try:
        pool.run(work, one_state=False, write=True)
    finally:
        pool.close()

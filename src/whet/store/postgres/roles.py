"""Who may do what with a shared store: rights of the database, which no client can get around.

A reader only reads. A contributor appends: it cannot change or remove a trial or a run that has
ended, nor another role's run, lease or timeline, nor write in another role's name; what grants
cannot say, the triggers in `migrations.py` do. A promoter reads, promotes and revokes keys. Whoever
made the store may do everything, `gc` and `migrate` among it.
"""

from __future__ import annotations

from typing import Literal, get_args

from psycopg import sql

from whet.core.errors import UsageError
from whet.store.postgres.address import PostgresAddress
from whet.store.postgres.connections import Connection, ConnectionPool

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

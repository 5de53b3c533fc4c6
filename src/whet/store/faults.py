"""Errors of databases in words: which store, what happened, what to do. Never a password."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from whet.core.errors import StoreError, option

if TYPE_CHECKING:
    import psycopg

    from whet.store.postgres.address import PostgresAddress


# By the low byte of SQLite's result code; the high bytes only refine it.
_WORDS = {
    sqlite3.SQLITE_BUSY: ("is locked by another process", "wait for that process to end"),
    sqlite3.SQLITE_LOCKED: ("is locked by another process", "wait for that process to end"),
    sqlite3.SQLITE_READONLY: ("is read-only", "make the file and its directory writable"),
    sqlite3.SQLITE_PERM: ("cannot be accessed", "check its permissions"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check its permissions"),
    sqlite3.SQLITE_NOTADB: ("is not a database", "move that file"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore it from a backup"),
    sqlite3.SQLITE_FULL: ("is on a full disk", "free some space"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "check the disk and its quota"),
}

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Less than SQLite takes at once for the index of its log.
_SCRAPS = 65_536


Fault = sqlite3.Error | sqlite3.Warning | OSError | UnicodeDecodeError


def another_store() -> str:
    """The end of a remedy, for whoever reads it."""
    return f"choose another store with {option('store')} or WHET_STORE"


def store_error(path: Path, error: Fault) -> StoreError:
    """`store /x/store.db is locked by another process (database is locked); wait for …`"""
    code = result_code(error)
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        if error.errno not in _NO_ROOM:
            return StoreError(f"store {path} cannot be used ({reason}); {another_store()}")
        code, error = sqlite3.SQLITE_FULL, OSError(reason)
    elif isinstance(error, UnicodeDecodeError):  # SQLite's own words, which quote what is damaged
        code, error = sqlite3.SQLITE_CORRUPT, OSError("its schema is not text")
    elif code == sqlite3.SQLITE_IOERR and _no_room(path):
        code = sqlite3.SQLITE_FULL
    what, remedy = _WORDS.get(code, ("failed", "try again"))
    return StoreError(f"store {path} {what} ({error}); {remedy}, or {another_store()}")


def _no_room(path: Path) -> bool:
    """SQLite calls it an I/O error where it was the log's index that found no room."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _SCRAPS


def network_error(path: Path, filesystem: str) -> StoreError:
    return StoreError(
        f"cannot write store {path}: its directory {path.parent} is on a network file system "
        f"({filesystem}), where SQLite's write-ahead log is not safe; choose a local path with "
        f"{option('store')} or WHET_STORE, and transfer results with 'whet pack' or "
        "'whet store merge'"
    )


def result_code(error: Fault) -> int:
    """SQLite's primary result code; 0 for errors of Python's module itself."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def unknown_workload(workload_id: str, location: str) -> StoreError:
    return StoreError(
        f"store {location} has no workload {workload_id}; call put_workload or save_run before "
        "adding its trials"
    )


def unknown_run(run_id: str, location: str) -> StoreError:
    return StoreError(
        f"store {location} has no run {run_id}; call save_run before adding its timeline"
    )


def gone_error(path: Path) -> StoreError:
    return StoreError(
        f"store {path} was removed or replaced while in use, so nothing more is written to it; "
        "leave its files in place and open it again"
    )


def file_read_only_error(path: Path) -> StoreError:
    return StoreError(
        f"store {path} is read-only; make the file and its directory writable, or {another_store()}"
    )


# By SQLSTATE, or its first two characters, which are its class.
_SERVER_WORDS = {
    "28": ("refused the login", "check the user and password (PGPASSWORD, ~/.pgpass)"),
    "3D": ("has no such database", "create it with 'createdb NAME', or name another"),
    "42501": (
        "does not allow this",
        "ask an administrator for a role with this right, as described in docs/fleet.md",
    ),
    "25006": ("is read-only", "connect to the primary server"),
    "53100": ("is on a full disk", "free some space on the server"),
    "53300": ("has too many connections", "raise max_connections, or put PgBouncer before it"),
    "57014": ("cancelled the statement", "raise statement_timeout, or try again"),
    "3F000": ("has no whet store there", "create it with 'whet store init'"),
    "42P01": ("has no complete whet store there", "create it with 'whet store init'"),
}


class ServerAwayError(StoreError):
    """The server cannot be reached, or the connection to it was lost."""

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(
            f"store {location} cannot be reached ({reason}); check the server and network"
        )
        self.reason = reason


class NotNowError(StoreError):
    """The server is there and cannot do this now: read-only, full, too busy; what it could not take
    is as good as before. `lasting` where a person has to do something first."""

    def __init__(self, message: str, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


# A trigger refuses one entry, with the SQLSTATE of a missing right; the server says who raised it.
_BY_A_TRIGGER = "exec_stmt_raise"

# Classes of SQLSTATE that say something of the server and nothing of what was sent.
_LASTING_STATES = ("28", "3D", "3F", "42")
_PASSING_STATES = (*_LASTING_STATES, "08", "25", "40", "53", "54", "55", "57", "58", "XX")


def postgres_error(address: PostgresAddress, error: psycopg.Error) -> StoreError:
    """`store postgresql://db/whet refused the login (…); check the user and password …`"""
    import psycopg

    reason = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
    reason = without_secrets(reason, address)
    state = error.sqlstate or ""
    found = _SERVER_WORDS.get(state) or _SERVER_WORDS.get(state[:2])
    if found is None and "authentication failed" in reason:
        found, state = _SERVER_WORDS["28"], "28"
    lasting = state.startswith(_LASTING_STATES)
    if found is not None:
        text = f"store {address.location} {found[0]} ({reason}); {found[1]}"
        by_a_trigger = error.diag.source_function == _BY_A_TRIGGER
        return StoreError(text) if by_a_trigger else NotNowError(text, lasting)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return ServerAwayError(address.location, reason)
    if state.startswith(_PASSING_STATES):
        text = f"store {address.location} failed ({reason}); run 'whet store stats --check'"
        return NotNowError(text, lasting)
    if isinstance(error, psycopg.DataError):
        return StoreError(f"store {address.location} cannot hold this ({reason}); use valid text")
    return StoreError(f"store {address.location} failed ({reason}); run 'whet store stats --check'")


def without_secrets(text: str, address: PostgresAddress) -> str:
    """libpq quotes what it cannot parse, and that may be the URL."""
    from urllib.parse import parse_qsl, unquote, urlsplit

    try:
        parts = urlsplit(address.dsn)
        secrets = [parts.password, unquote(parts.password or "")]
        secrets += [v for k, v in parse_qsl(parts.query) if k in ("password", "sslpassword")]
    except ValueError:
        secrets = []
    text = text.replace(address.dsn, address.location)
    for secret in secrets:
        if secret and len(secret) > 2:
            text = text.replace(secret, "…")
    return text


def closed_error(location: str) -> StoreError:
    return StoreError(f"store {location} is closed; open it again")


def read_only_error(location: str) -> StoreError:
    return StoreError(f"store {location} is read-only; open it without read_only")

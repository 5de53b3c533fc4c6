"""SQLite's errors, in words: which file, what happened, what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from whet.core.errors import StoreError

_ELSEWHERE = "or choose another one with --store"

# By the low byte of SQLite's result code; the high bytes only refine it.
_WORDS = {
    sqlite3.SQLITE_BUSY: (
        "is locked by another process",
        f"wait for that process to end, {_ELSEWHERE}",
    ),
    sqlite3.SQLITE_LOCKED: (
        "is locked by another process",
        f"wait for that process to end, {_ELSEWHERE}",
    ),
    sqlite3.SQLITE_READONLY: (
        "is read-only",
        f"make the file and its folder writable, {_ELSEWHERE}",
    ),
    sqlite3.SQLITE_PERM: ("may not be accessed", f"check its permissions, {_ELSEWHERE}"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", f"check its permissions, {_ELSEWHERE}"),
    sqlite3.SQLITE_NOTADB: ("is not a database", f"move that file away, {_ELSEWHERE}"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", f"restore it from a backup, {_ELSEWHERE}"),
    sqlite3.SQLITE_FULL: ("is on a full disk", f"free some space, {_ELSEWHERE}"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", f"check the disk, {_ELSEWHERE}"),
}


Fault = sqlite3.Error | sqlite3.Warning | OSError | UnicodeDecodeError


def store_error(path: Path, error: Fault) -> StoreError:
    """`store /x/store.db is locked by another process (database is locked); wait for …`"""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return StoreError(f"store {path} cannot be used ({reason}); choose another with --store")
    if isinstance(error, UnicodeDecodeError):  # SQLite's own words, which quote what is damaged
        what, remedy = _WORDS[sqlite3.SQLITE_CORRUPT]
        return StoreError(f"store {path} {what} (its schema is no text); {remedy}")
    what, remedy = _WORDS.get(result_code(error), ("failed", f"try again, {_ELSEWHERE}"))
    return StoreError(f"store {path} {what} ({error}); {remedy}")


def result_code(error: sqlite3.Error | sqlite3.Warning) -> int:
    """SQLite's primary result code; 0 for errors of Python's module itself."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def unknown_workload(workload_id: str, location: str) -> StoreError:
    return StoreError(
        f"store {location} does not know workload {workload_id}; "
        "put_workload or save_run comes before its trials"
    )


def unknown_run(run_id: str, location: str) -> StoreError:
    return StoreError(
        f"store {location} does not know run {run_id}; save_run comes before its timeline"
    )


def read_only_error(path: Path) -> StoreError:
    return StoreError(
        f"store {path} is read-only, so nothing can be written to it; "
        f"make the file and its folder writable, {_ELSEWHERE}"
    )

"""SQLite's errors, in words: which file, what happened, what to do."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from whet.core.errors import StoreError, option

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


def read_only_error(path: Path) -> StoreError:
    return StoreError(
        f"store {path} is read-only; make the file and its directory writable, or {another_store()}"
    )

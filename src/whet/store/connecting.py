"""A checked connection to a store's file: made, recognised, upgraded, or refused untouched; the
tables in it, with how a store of an older version becomes one of this version; and which file
systems are shared between machines."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from whet.core.errors import StoreError, UsageError
from whet.core.trial import new_id
from whet.store.faults import another_store, network_error, result_code, store_error


def connect(path: Path, *, read_only: bool, busy_s: float) -> tuple[sqlite3.Connection, bool]:
    """A connection in autocommit mode, and whether it can only read.

    A missing file is made, with its folders; a link is followed, since SQLite keeps its log beside
    the file itself. A file that is not a store of this version or an older one raises `StoreError`
    and keeps every byte it has, and so does one on a network, where only a file without a log can
    be read.
    """
    path = Path(os.path.realpath(path))
    try:
        there = _is_file(path)
        if not there and read_only:
            raise StoreError(f"no store at {path} yet; 'whet tune' creates it")
        network = network_filesystem(path.parent)
        if network:
            if not read_only:
                raise network_error(path, network)
            return _connect_apart(path, network), True
        if not there:
            _create(path)
        _check_owner(path)
        if read_only or not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return _connect_reading(path, busy_s), True
        return _connect_writing(path, busy_s), False
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise store_error(path, error) from error


def _is_file(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise UsageError(f"store {path} is a directory; name a file in it, such as {path}/store.db")
    if not stat.S_ISREG(mode):
        raise UsageError(f"store {path} is not a regular file; {another_store()}")
    return True


def _create(path: Path) -> None:
    """Makes the store under another name first and links it into place whole, so that neither a
    kill nor a second process that does the same can leave or meet half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{new_id()}.new")
    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN")
            create(db)
            db.execute("COMMIT")
            # Only now: what closing copies from a log to the file may not fit, and nobody is told.
            db.execute("PRAGMA journal_mode = WAL")
        _flush(draft)
        with _without_leftovers(path):
            os.link(draft, path)
    except FileExistsError:
        pass  # another process was quicker
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _without_leftovers(path: Path) -> Iterator[None]:
    """SQLite would replay the log of a store that is gone into the new one. One that is empty, as
    whoever only reads leaves it, is removed, by one process at a time: that of a store which
    another has just made looks the same."""
    log, index = (path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))
    if not log.exists() and not index.exists():
        yield
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not path.exists():
            if log.exists() and log.stat().st_size > 0:
                raise StoreError(
                    f"{log} is left over from a deleted store and has results; restore {path}, "
                    f"or delete {log} and {index}"
                )
            log.unlink(missing_ok=True)
            index.unlink(missing_ok=True)
        yield
    finally:
        os.close(folder)


def _check_owner(path: Path, *, locks: bool = True) -> None:
    """Refuses what is not ours, before anything is opened in a way that could write.

    `immutable` makes SQLite read the file as it is: no lock, no journal, no recovery. A file
    that another process is growing at this moment can look damaged that way and is asked again
    under a lock, where there are `locks`. (Python's own `open` would not do: closing it drops
    the locks that SQLite holds on the same file in this process.)
    """
    try:
        owner, version = _owner(path, "mode=ro&immutable=1")
    except sqlite3.DatabaseError as error:
        if result_code(error) == sqlite3.SQLITE_NOTADB:
            raise _not_a_store(path, "not an SQLite database") from error
        if result_code(error) != sqlite3.SQLITE_CORRUPT or not locks:
            raise
        owner, version = _owner(path, "mode=ro")
    if owner != APPLICATION_ID:
        what = "empty" if path.stat().st_size == 0 else "a database of another application"
        raise _not_a_store(path, what)
    _check_version(path, version)


def _owner(path: Path, options: str) -> tuple[int, int]:
    with closing(_open(path, options, busy_s=1.0)) as db:
        return pragma(db, "application_id"), stored_version(db)


def _check_version(path: Path, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"store {path} has schema version {version}, but this whet supports versions up to "
            f"{SCHEMA_VERSION}; upgrade whet, or {another_store()}"
        )
    if version < 1:
        raise _not_a_store(path, f"a database with the unknown schema version {version}")


def _not_a_store(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path} is not a whet store ({what}) and was not changed; move it, or {another_store()}"
    )


def _connect_writing(path: Path, busy_s: float) -> sqlite3.Connection:
    db = _open(path, "mode=rw", busy_s)
    try:
        if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            db.execute("PRAGMA journal_mode = WAL")
        # A killed process loses nothing it has committed: the log is with the operating system.
        # Only a power cut may take the last commits, and even that damages nothing.
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA foreign_keys = ON")
        # Fewer, larger copies from the log to the file: a page changed often is copied once.
        db.execute("PRAGMA wal_autocheckpoint = 4000")
        db.execute("PRAGMA cache_size = -16384")
        if stored_version(db) != SCHEMA_VERSION:
            _upgrade(db, path, busy_s)
    except BaseException:
        db.close()
        raise
    return db


def _connect_reading(path: Path, busy_s: float) -> sqlite3.Connection:
    """Read-only, with the log where it can be read. In a folder that is read-only too, the log
    has no index to be read with; then the file alone is read, if the log holds nothing more."""
    db = _open(path, "mode=ro", busy_s)
    try:
        stored_version(db)
    except sqlite3.OperationalError as error:
        db.close()
        if result_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        _refuse_unread_log(path, "in a read-only directory")
        db = _open(path, "mode=ro&immutable=1", busy_s)
    return _readable(db, path)


def _connect_apart(path: Path, network: str) -> sqlite3.Connection:
    """The file as it lies there: no lock, no log, nothing written beside it."""
    _refuse_unread_log(path, f"on a network file system ({network})")
    _check_owner(path, locks=False)
    return _readable(_open(path, "mode=ro&immutable=1", busy_s=0.0), path)


def _readable(db: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    version = stored_version(db)
    if not OLDEST_READABLE <= version <= SCHEMA_VERSION:
        db.close()
        _check_version(path, version)
        raise StoreError(
            f"store {path} has the older schema version {version} and is read-only; open it "
            f"once with write access to upgrade it to {SCHEMA_VERSION}"
        )
    if version < SCHEMA_VERSION:
        _stand_in(db, version)
    return db


def _refuse_unread_log(path: Path, where: str) -> None:
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size > 0:
        raise StoreError(
            f"store {path} is {where} and has results in {log.name} that cannot be read there; "
            "copy both files to a writable directory and use the copy"
        )


def _upgrade(db: sqlite3.Connection, path: Path, busy_s: float) -> None:
    """Copies the store aside, then migrates it, in one transaction that shuts other writers out.

    Where that fails, the store and its folder are as they were.
    """
    backup: Path | None = None
    db.execute("BEGIN IMMEDIATE")
    try:
        version = stored_version(db)
        _check_version(path, version)
        if version < SCHEMA_VERSION:
            backup = _back_up(path, version, busy_s)
            migrate(db, version)
        db.execute("COMMIT")
    except BaseException as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        if backup is not None:
            backup.unlink(missing_ok=True)
        if isinstance(error, ValueError | KeyError | TypeError):
            raise StoreError(
                f"store {path} has damaged rows and cannot be upgraded ({error}); it was not "
                f"changed; restore it from a backup, or {another_store()}"
            ) from error
        raise


def _back_up(path: Path, version: int, busy_s: float) -> Path:
    draft = path.with_name(f".{path.name}.{new_id()}.bak")
    try:
        with (
            closing(_open(path, "mode=ro", busy_s)) as source,
            closing(sqlite3.connect(draft)) as copy,
        ):
            source.backup(copy)
        return _link_free(draft, f"{path}.v{version}")
    finally:
        draft.unlink(missing_ok=True)


def _link_free(draft: Path, stem: str) -> Path:
    """`store.db.v1.bak`, or `store.db.v1.2.bak` and so on where there is one already."""
    name, number = Path(f"{stem}.bak"), 1
    while True:
        try:
            os.link(draft, name)
            return name
        except FileExistsError:
            number += 1
            name = Path(f"{stem}.{number}.bak")


def _open(path: Path, options: str, busy_s: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
    )


def stored_version(db: sqlite3.Connection) -> int:
    """An older one for a store that was opened to be read only and left as it is."""
    return pragma(db, "user_version")


def pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


# "whet", in the place where SQLite files say whose they are.
APPLICATION_ID = 0x77686574
SCHEMA_VERSION = 6

# Versions from this one on only lack tables, so they can be read as they are.
OLDEST_READABLE = 2

# Columns that look-ups need come before the bulky ones, so that SQLite need not read past them.
# Ids of trials are random: an index of them alone would have every append touch pages all over
# the file, while with the workload in front one workload's trials stay together.
_WORKLOADS = """
CREATE TABLE workloads (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  kernel      TEXT NOT NULL,
  added       REAL NOT NULL,
  active      REAL,
  body        TEXT NOT NULL
)"""

_TRIALS = """
CREATE TABLE trials (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL,
  workload    INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  config_id   TEXT NOT NULL,
  status      TEXT NOT NULL,
  median_ns   REAL,
  created     REAL NOT NULL,
  run_id      TEXT NOT NULL,
  config      TEXT NOT NULL,
  cost        TEXT NOT NULL,
  facts       TEXT NOT NULL,
  "limit"     TEXT,
  timing      TEXT,
  samples     BLOB,
  error       TEXT NOT NULL,
  UNIQUE (workload, id)
)"""

# One row per config: which trial is its latest. Kept in the transaction that appends the trial.
# `first` is the config's first trial and gives the order of appearance. `trial` and `first` are
# no foreign keys: that would want two more indexes for every delete to look into.
_LATEST = """
CREATE TABLE latest (
  workload    INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  config_id   TEXT NOT NULL,
  first       INTEGER NOT NULL,
  trial       INTEGER NOT NULL,
  ok          INTEGER NOT NULL,
  median_ns   REAL,
  PRIMARY KEY (workload, config_id)
) WITHOUT ROWID"""

_RUNS = """
CREATE TABLE runs (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  workload    INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  started     REAL NOT NULL,
  outcome     TEXT NOT NULL,
  best_id     TEXT,
  body        TEXT NOT NULL
)"""

# Apart from the runs, which are read often, and much smaller.
_TIMELINES = """
CREATE TABLE timelines (
  run         INTEGER PRIMARY KEY REFERENCES runs(n) ON DELETE CASCADE,
  body        BLOB NOT NULL
)"""

# Keys that were met where nothing may be tuned. Their workloads have no row until they are tuned.
_MISSED = """
CREATE TABLE missed (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  kernel      TEXT NOT NULL,
  at          REAL NOT NULL,
  body        TEXT NOT NULL
)"""

# One row for each run that is in the middle of first launches, so hardly ever more than one.
_MARKS = """
CREATE TABLE marks (
  n           INTEGER PRIMARY KEY,
  run_id      TEXT NOT NULL UNIQUE,
  workload    INTEGER NOT NULL REFERENCES workloads(n) ON DELETE CASCADE,
  body        TEXT NOT NULL
)"""

# One row for each workload with runs of several stores that no run has brought together yet: the
# trial that is its pick, those it is contested with, and all that may not go before a run decides,
# as lists of `trials.n`. It follows from runs and trials; kept, since look-ups have to be quick.
_PICKS = """
CREATE TABLE picks (
  workload    INTEGER PRIMARY KEY REFERENCES workloads(n) ON DELETE CASCADE,
  trial       INTEGER NOT NULL,
  rivals      TEXT NOT NULL,
  kept        TEXT NOT NULL
)"""

_LATEST_INDEX = "CREATE INDEX latest_by_median ON latest(workload, median_ns, first) WHERE ok"

_CURRENT = (
    _WORKLOADS,
    "CREATE INDEX workloads_by_kernel ON workloads(kernel)",
    _TRIALS,
    "CREATE INDEX trials_by_workload ON trials(workload)",
    _LATEST,
    _LATEST_INDEX,
    _RUNS,
    "CREATE INDEX runs_by_start ON runs(workload, started)",
    _TIMELINES,
    _MISSED,
    _MARKS,
    _PICKS,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


# By the version that first had it.
_ADDED = {3: _TIMELINES, 4: _MISSED, 5: _MARKS, 6: _PICKS}


def _stand_in(db: sqlite3.Connection, version: int) -> None:
    """For the tables that an older version lacks: empty ones, this connection's own."""
    db.execute("PRAGMA temp_store = MEMORY")
    for first, table in _ADDED.items():
        if version < first:
            db.execute(table.replace("CREATE TABLE", "CREATE TEMP TABLE"))


def create(db: sqlite3.Connection) -> None:
    """Fills an empty database; the caller's transaction makes it all or nothing."""
    for statement in _CURRENT:
        db.execute(statement)


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Takes `version` to `SCHEMA_VERSION`, step by step, inside the caller's transaction."""
    while version < SCHEMA_VERSION:
        _STEPS[version](db)
        version += 1
        db.execute(f"PRAGMA user_version = {version}")


def _from_1(db: sqlite3.Connection) -> None:
    """Version 1 searched all trials for the latest, and for when a workload was last active."""
    db.execute(_LATEST)
    db.execute(_LATEST_INDEX)
    db.execute(
        """
        INSERT INTO latest (workload, config_id, first, trial, ok, median_ns)
        SELECT t.workload, t.config_id, ends.first, t.n, t.status = 'ok', t.median_ns
        FROM (SELECT min(n) AS first, max(n) AS last FROM trials GROUP BY workload, config_id) ends
        JOIN trials t ON t.n = ends.last
        """
    )
    db.execute("ALTER TABLE workloads ADD COLUMN active REAL")
    moments = dict(db.execute("SELECT workload, max(created) FROM trials GROUP BY workload"))
    for workload, body in db.execute("SELECT workload, body FROM runs"):
        run = json.loads(body)
        end = run["started"] + run["wall_s"]
        moments[workload] = max(moments.get(workload, end), end)
    db.executemany(
        "UPDATE workloads SET active = ? WHERE n = ?",
        [(moment, workload) for workload, moment in moments.items()],
    )


def _adding(table: str) -> Callable[[sqlite3.Connection], object]:
    return lambda db: db.execute(table)


# Version 2 kept no timelines, 3 did not write down what it missed, 4 wrote nothing down before a
# launch, and 5 took the newest run's choice, whichever store it came from.
_STEPS: dict[int, Callable[[sqlite3.Connection], object]] = {
    1: _from_1,
    **{version - 1: _adding(table) for version, table in _ADDED.items()},
}


# SQLite's write-ahead log is indexed in memory that all who use the store map from one file. Two
# machines never see the same memory, and few network file systems keep the locks that guard it: a
# store there works until the day on which it is damaged.
MOUNTS = Path("/proc/self/mountinfo")

# By the name that Linux has for it, `fuse.` and the program's name for those in user space. Left
# out are what is local in spite of its looks (overlay, virtiofs inside one guest, fuse.mergerfs)
# and what nobody can write to (cvmfs, squashfs).
NETWORK = frozenset(
    {
        # files of a server
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p"),
        # one file system of many servers
        *("ceph", "glusterfs", "lustre", "beegfs", "gpfs", "pvfs2", "orangefs", "panfs", "wekafs"),
        *("fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.juicefs", "fuse.seaweedfs"),
        *("fuse.weed", "fuse.mfs", "fuse.moosefs", "fuse.lizardfs", "fuse.alluxio-fuse"),
        # files of another machine, by some other protocol
        *("fuse.sshfs", "fuse.curlftpfs", "fuse.davfs", "fuse.davfs2", "davfs", "fuse.smbnetfs"),
        # objects in a cloud, which are replaced whole
        *("fuse.s3fs", "fuse.goofys", "fuse.mountpoint-s3", "fuse.gcsfuse"),
        *("fuse.rclone", "fuse.blobfuse", "fuse.blobfuse2", "fuse.geesefs"),
        # folders of the host in a virtual machine
        *("vboxsf", "vmhgfs", "fuse.vmhgfs-fuse", "prl_fs", "fuse.osxfs", "fuse.grpcfuse"),
    }
)

# gVisor's own 9p: all processes of a sandbox use one kernel, which maps the host's files.
_SANDBOX = (b"directfs", b"cache=remote_revalidating")

# For what a host keeps, after the user's own TMPDIR; the first outlives a restart.
SCRATCH = ("/var/tmp", "/tmp")

_found: dict[tuple[str, int], str] = {}


def network_filesystem(folder: Path) -> str:
    """`nfs4` for a folder on one, also for one that is yet to be made there; "" for a local
    folder, and where the system does not tell."""
    place = os.path.realpath(folder)
    while True:
        try:
            device = os.stat(place).st_dev
            break
        except OSError:
            above = os.path.dirname(place)
            if above == place:
                return ""
            place = above
    if _is_disk(device):
        return ""
    key = place, device
    if key not in _found:
        _found[key] = _network_among(_mounts(), os.fsencode(place))
    return _found[key]


def local_scratch(environ: Mapping[str, str]) -> Path | None:
    """A folder on this machine that only this user can use; None where there is none."""
    for above in (environ.get("TMPDIR", ""), *SCRATCH):
        folder = Path(above, f"whet-{os.getuid()}")
        if folder.is_absolute() and not network_filesystem(folder) and _is_own(folder):
            return folder
    return None


def _is_own(folder: Path) -> bool:
    """Made where it is not there. Everybody may write above it, and so have made it, or a link."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return private and found.st_uid == os.getuid()


def _is_disk(device: int) -> bool:
    """Linux numbers a disk's partitions; what is no disk of this machine has a zero in front.
    Asking the number first saves most people from reading what is mounted."""
    return os.major(device) != 0


def _mounts() -> bytes:
    try:
        with open(MOUNTS, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""


def _network_among(mounts: bytes, folder: bytes) -> str:
    """By the longest mount point above the folder, of those in one place the last."""
    inside, longest, found = folder.rstrip(b"/") + b"/", b"", b""
    for line in mounts.splitlines():
        fields = line.split(b" ", 5)
        if len(fields) < 6:
            continue
        point = _plain(fields[4])
        if len(point) >= len(longest) and inside.startswith(point.rstrip(b"/") + b"/"):
            longest, found = point, fields[5]
    kind, _, options = found.partition(b" - ")[2].partition(b" ")
    name = kind.decode(errors="replace")
    return name if name in NETWORK and not any(own in options for own in _SANDBOX) else ""


def _plain(escaped: bytes) -> bytes:
    r"""`/mnt/my\040disk` is `/mnt/my disk`."""
    if b"\\" not in escaped:
        return escaped
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8) & 0xFF]), escaped)

"""`Outbox`: what was written here and is not yet on the server, in a file that outlives us."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from whet.core.errors import StoreError
from whet.core.miss import Miss
from whet.core.run import Run
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.protocol import LOCK

if TYPE_CHECKING:
    from whet.store.postgres.signing import SigningKey

EntryKind = Literal["workload", "trial", "run", "timeline", "miss", "forget"]

_TABLES = """
CREATE TABLE IF NOT EXISTS entries (
  n INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS refused (
  n INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, reason TEXT NOT NULL
);
"""


@dataclass(frozen=True)
class OutboxEntry:
    """`body` is JSON. What is sent twice is there once: ids are in it."""

    kind: EntryKind
    body: str
    n: int = 0

    @classmethod
    def of(cls, thing: Workload | Trial | Run | Miss, key: SigningKey | None = None) -> OutboxEntry:
        """`key` signs trials and runs, so that whoever sends them needs none."""
        kinds: dict[type, EntryKind] = {
            Workload: "workload",
            Trial: "trial",
            Run: "run",
            Miss: "miss",
        }
        if key is None or not isinstance(thing, Trial | Run):
            return cls(kinds[type(thing)], json.dumps(thing.to_json()))
        signed = {**thing.to_json(), "signature": key.sign(thing)}
        return cls(kinds[type(thing)], json.dumps(signed))

    @classmethod
    def of_run(cls, run: Run, token: int | None, key: SigningKey | None = None) -> OutboxEntry:
        """`token` is that of the lease under which it was made; None without one."""
        signature = None if key is None else key.sign(run)
        return cls("run", json.dumps({**run.to_json(), "token": token, "signature": signature}))

    @property
    def token(self) -> int | None:
        token = json.loads(self.body).get("token") if self.kind == "run" else None
        return None if token is None else int(token)

    @property
    def signature(self) -> str | None:
        signed = self.kind in ("trial", "run")
        return json.loads(self.body).get("signature") if signed else None

    @classmethod
    def of_timeline(cls, run_id: str, timeline: Timeline) -> OutboxEntry:
        packed = base64.b64encode(timeline.packed()).decode()
        return cls("timeline", json.dumps({"run": run_id, "packed": packed}))

    @classmethod
    def forgetting(cls, workload_ids: Sequence[str]) -> OutboxEntry:
        return cls("forget", json.dumps(list(workload_ids)))

    def thing(self) -> Any:
        data = json.loads(self.body)
        if self.kind == "timeline":
            return data["run"], Timeline.from_packed(base64.b64decode(data["packed"]))
        kinds: dict[str, Any] = {"workload": Workload, "trial": Trial, "run": Run, "miss": Miss}
        return data if self.kind == "forget" else kinds[self.kind].from_json(data)


class Outbox:
    """Many processes of a host put into one; one of them at a time sends. Once `put` has returned,
    kill -9 loses nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "outbox.db"
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        self._closed = False

    def put(self, entries: Iterable[OutboxEntry]) -> list[int]:
        """Their numbers, by which they can be taken back."""
        with self._guarded() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                made = [
                    db.execute(
                        "INSERT INTO entries (kind, body) VALUES (?, ?)", (one.kind, one.body)
                    ).lastrowid
                    for one in entries
                ]
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise
            return [n for n in made if n is not None]

    def oldest(self, count: int) -> list[OutboxEntry]:
        with self._guarded() as db:
            rows = db.execute("SELECT kind, body, n FROM entries ORDER BY n LIMIT ?", (count,))
            return [OutboxEntry(*row) for row in rows.fetchall()]

    def remove(self, numbers: Iterable[int]) -> None:
        with self._guarded() as db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM entries WHERE n = ?", [(n,) for n in numbers])
            db.execute("COMMIT")

    def refuse(self, entry: OutboxEntry, reason: str) -> None:
        """Out of the way of others, and kept for a person to look at."""
        with self._guarded() as db:
            db.execute("BEGIN IMMEDIATE")
            row = (entry.n, entry.kind, entry.body, reason)
            db.execute("INSERT OR REPLACE INTO refused VALUES (?, ?, ?, ?)", row)
            db.execute("DELETE FROM entries WHERE n = ?", (entry.n,))
            db.execute("COMMIT")

    def retry_refused(self) -> None:
        """What was refused once is sent again, before what came later."""
        with self._guarded() as db:
            if not db.execute("SELECT 1 FROM refused LIMIT 1").fetchone():
                return
            db.execute("BEGIN IMMEDIATE")
            db.execute(
                "INSERT OR IGNORE INTO entries (n, kind, body) SELECT n, kind, body FROM refused"
            )
            db.execute("DELETE FROM refused")
            db.execute("COMMIT")

    @property
    def refused(self) -> list[str]:
        """Why the server did not take what it was sent, a reason each."""
        with self._guarded() as db:
            return [row[0] for row in db.execute("SELECT reason FROM refused ORDER BY n")]

    def __len__(self) -> int:
        with self._guarded() as db:
            return int(db.execute("SELECT count(*) FROM entries").fetchone()[0])

    @contextmanager
    def sending(self) -> Iterator[bool]:
        """Whether it is this process's turn to send. The system ends the turn of a dead one."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._folder / "sending.lock", flags, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        with LOCK:
            self._closed = True
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        with LOCK:
            try:
                yield self._connection()
            except sqlite3.Error as error:
                raise StoreError(
                    f"outbox {self._path} cannot be used ({error}); check the disk"
                ) from error

    def _connection(self) -> sqlite3.Connection:
        """In a forked child one of its own; the inherited one is idle and closed first, as in
        `SqliteStore`."""
        if self._closed:
            raise StoreError(f"outbox {self._path} is closed; open the store again")
        if self._db is not None and self._pid != os.getpid():
            self._db.close()
            self._db = None
        if self._db is None:
            self._db = sqlite3.connect(
                self._path, timeout=10.0, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(_TABLES)
            self._pid = os.getpid()
        return self._db

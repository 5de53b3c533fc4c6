"""`LocalFirstStore`: a store of this host, over one that a team shares.

Whatever is written is here at once, and on the server later. What is read is asked of the server
once in the life of a process, and is then here: before the answer is needed where nothing is known
yet, behind one's back where something is. Leases are the database's: its clock, a token that only
grows, and a thread here that renews.

Why it is so: docs/decisions/shared-store.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.core.errors import StoreError
from whet.core.miss import Miss
from whet.core.process import Mark
from whet.core.run import Outcome, Run
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.faults import (
    NotNowError,
    ServerAwayError,
    closed_error,
    read_only_error,
)
from whet.store.merging import Contents, MergeReport, contents, forget_known
from whet.store.overlay import DelegatingStore
from whet.store.postgres.address import PostgresAddress
from whet.store.postgres.link import ServerLink
from whet.store.postgres.outbox import Outbox, OutboxEntry
from whet.store.postgres.signing import SigningKey
from whet.store.postgres.store import PostgresSession, PostgresStore
from whet.store.protocol import (
    Lease,
    LeaseHeld,
    Match,
    Pick,
    StoreReader,
    WorkloadSummary,
)
from whet.store.sql import SqliteStore
from whet.store.sweeping import GcReport

logger = logging.getLogger("whet")

_BATCH = 500
_CLOSE_S = 2.0
# What the server did not know either may be known there later.
_ASK_AGAIN_S = 30.0
# A server that takes nothing at present is tried again after this, and then ever more rarely.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 1.0, 60.0
# As many of a kernel's other workloads are fetched to learn from.
_MOST_OTHERS = 200


class LocalFirstStore(DelegatingStore):
    """`folder` has the host's own store and the outbox. Nobody waits for the server longer than
    `wait_s`, and that once per outage. A server that refuses (a wrong password, no such database)
    raises `StoreError` where it says so in time. Where only some entries are trusted, what this
    host has measured counts until the server is asked, and then as everybody's does."""

    _own: SqliteStore

    def __init__(
        self,
        address: PostgresAddress,
        folder: Path,
        *,
        read_only: bool = False,
        wait_s: float,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._address = address
        self._folder = folder
        self._read_only = read_only
        self._key = None if address.signing_key is None else SigningKey.read(address.signing_key)
        self._restricted = address.trust == "promoted" or address.trusted_keys is not None
        self._own = SqliteStore(folder / "store.db")
        super().__init__(self._own)
        self._outbox = Outbox(folder)
        self._asked: dict[str, float] = {}
        self._listed: set[str] = set()
        self._leases: dict[str, HeldLease] = {}
        self._closed = False
        self._pause_s, self._paused_until = 0.0, 0.0
        if not read_only:
            self._outbox.retry_refused()
        self._link = ServerLink(
            address, wait_s=wait_s, read_only=read_only, on_return=self._send_some
        )
        try:
            self._link.ask(lambda server: None)
        except ServerAwayError:
            pass
        except StoreError as error:
            if not isinstance(error, NotNowError) or error.lasting:
                self._link.close()
                self._own.close()
                raise
        if not read_only and len(self._outbox):
            self._link.nudge()

    def __repr__(self) -> str:
        return f"LocalFirstStore({self.location!r})"

    @property
    def location(self) -> str:
        return self._address.location

    @property
    def read_only(self) -> bool:
        return self._read_only

    @property
    def lock_folder(self) -> Path | None:
        return self._folder / "locks"

    @property
    def unsent(self) -> int:
        """How much waits for the server."""
        return len(self._outbox)

    def flush(self, seconds: float) -> bool:
        """Whether all is sent, within so many seconds."""
        deadline = time.monotonic() + seconds
        while len(self._outbox) and time.monotonic() < deadline and self._sends:
            self._link.nudge()
            time.sleep(0.01)
        return not len(self._outbox)

    @property
    def _sends(self) -> bool:
        return not self._link.away and time.monotonic() >= self._paused_until

    def lease(self, workload_id: str, process: str) -> Lease | LeaseHeld | None:
        """See `LeasingStore`. Releasing one sends first what was found under it; where that takes
        too long it runs out by itself, or another host would find nothing and tune as well."""
        self._refuse_if_closed()
        if self._read_only:
            return None

        def work(server: PostgresStore) -> int | LeaseHeld:
            token = take_lease(server, workload_id, process, LEASE_S)
            if isinstance(token, int):
                self._pull(server, workload_id)
            return token

        try:
            token = self._link.ask(work)
        except (ServerAwayError, NotNowError):
            return None
        if isinstance(token, LeaseHeld):
            return token
        self._asked[workload_id] = time.monotonic()

        def renew(seconds: float = LEASE_S) -> bool:
            ask = self._link.ask
            return ask(lambda server: renew_lease(server, workload_id, token, seconds), _CLOSE_S)

        def end() -> None:
            self._leases.pop(workload_id, None)
            with suppress(StoreError):
                if self.flush(_CLOSE_S):
                    renew(0.0)

        held = HeldLease(token, LEASE_S, renew, end)
        self._leases[workload_id] = held
        return held

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        self._fetch(workload_id)
        return self._own.trials(workload_id, all=all)

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        self._fetch(workload_id)
        return self._own.latest(workload_id, config_id)

    def pick(self, workload_id: str) -> Pick | None:
        self._fetch(workload_id)
        return self._own.pick(workload_id)

    def runs(self, workload_id: str) -> list[Run]:
        self._fetch(workload_id)
        return self._own.runs(workload_id)

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        if kernel is not None:
            self._list_others(kernel)
        return self._own.workloads(kernel)

    def match(self, workload: Workload) -> Match | None:
        self._fetch(workload.id)
        self._list_others(workload.kernel)
        return self._own.match(workload)

    def put_workload(self, workload: Workload) -> None:
        with self._sent([OutboxEntry.of(workload)], [workload.id]):
            self._own.put_workload(workload)

    def append(self, trials: Iterable[Trial]) -> int:
        batch = list(trials)
        entries = [OutboxEntry.of(one, self._key) for one in batch]
        with self._sent(entries, [trial.workload_id for trial in batch]):
            return self._own.append(batch)

    def save_run(self, run: Run) -> None:
        lease = self._leases.get(run.workload.id)
        entry = OutboxEntry.of_run(run, None if lease is None else lease.token, self._key)
        with self._sent([entry], [run.workload.id]):
            self._own.save_run(run)

    def save_timeline(self, run_id: str, timeline: Timeline) -> None:
        with self._sent([OutboxEntry.of_timeline(run_id, timeline)]):
            self._own.save_timeline(run_id, timeline)

    def miss(self, miss: Miss) -> bool:
        with self._sent([OutboxEntry.of(miss)]):
            return self._own.miss(miss)

    def forget_missed(self, workload_ids: Iterable[str]) -> int:
        ids = list(workload_ids)
        with self._sent([OutboxEntry.forgetting(ids)] if ids else []):
            return self._own.forget_missed(ids)

    def mark(self, mark: Mark) -> None:
        self._refuse_if_read_only()
        self._own.mark(mark)

    def unmark(self, run_id: str) -> None:
        self._refuse_if_read_only()
        self._own.unmark(run_id)

    def gc(self, *, dry_run: bool = False, **asked: Any) -> GcReport:
        """Of what this host keeps; the server's is swept by `whet store gc`."""
        if not dry_run:
            self._refuse_if_read_only()
        return self._own.gc(dry_run=dry_run, **asked)

    def merge(self, other: StoreReader) -> MergeReport:
        self._refuse_if_read_only()
        for part in contents(other):
            parts: list[Workload | Run | Trial] = [part.workload, *part.runs, *part.trials]
            entries = [OutboxEntry.of(one, self._key) for one in parts]
            with self._sent(entries, [part.workload.id]):
                pass
        return self._own.merge(other)

    def close(self) -> None:
        """What can be sent within two seconds is sent; the rest is, by whoever opens it next."""
        if not self._closed:
            for lease in list(self._leases.values()):
                lease.release()
            self._closed = True
            if not self._read_only and len(self._outbox):
                self._link.drain(_CLOSE_S)
            self._link.close()
            self._outbox.close()
        self._own.close()

    @contextmanager
    def _sent(self, entries: Sequence[OutboxEntry], ids: Iterable[str] = ()) -> Iterator[None]:
        """Into the outbox before it is here: a process that dies in between has sent one too many,
        which is a true measurement, and not one too few."""
        self._refuse_if_read_only()
        self._refuse_if_closed()
        for id in ids:
            self._asked.setdefault(id, time.monotonic())
        numbers = self._outbox.put(entries) if entries else []
        try:
            yield
        except BaseException:
            self._outbox.remove(numbers)
            raise
        if numbers:
            self._link.nudge()

    def _refuse_if_read_only(self) -> None:
        if self._read_only:
            raise read_only_error(self.location)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise closed_error(self.location)

    def _fetch(self, workload_id: str) -> None:
        """Asks the server, unless it was asked already; waits only where nothing is known here, or
        where what is known may no longer be trusted."""
        self._refuse_if_closed()
        now = time.monotonic()
        asked = self._asked.get(workload_id)
        if asked is not None and now - asked < _ASK_AGAIN_S:
            return
        known = self._own.pick(workload_id) is not None
        if asked is not None and known:
            return
        self._asked[workload_id] = now
        if known and not self._restricted:
            self._link.tell(lambda server: self._pull(server, workload_id))
            return
        try:
            self._link.ask(lambda server: self._pull(server, workload_id))
        except (ServerAwayError, NotNowError):
            self._asked.pop(workload_id, None)

    def _list_others(self, kernel: str) -> None:
        """Fetches the kernel's other workloads, once and without waiting."""
        if kernel not in self._listed and not self._link.away:
            self._listed.add(kernel)
            self._link.tell(lambda server: self._pull_others(server, kernel))

    def _pull_others(self, server: PostgresStore, kernel: str) -> None:
        for one in server.workloads(kernel)[:_MOST_OTHERS]:
            if one.workload.id not in self._asked:
                self._asked[one.workload.id] = time.monotonic()
                self._pull(server, one.workload.id)

    def _pull(self, server: PostgresStore, workload_id: str) -> None:
        fetched = _fetched_from(server, workload_id)
        if self._closed:
            return
        if self._restricted:
            self._drop_unless(fetched, workload_id)
        if fetched is None:
            return
        self._own.take([fetched.part])
        forget_known(self._own)
        for run in fetched.history:
            mine = self._own.run(run.id)
            late = mine is not None and mine.chose and run.outcome is Outcome.INTERRUPTED
            if mine is None or late or (mine.outcome is Outcome.RUNNING and run != mine):
                self._own.save_run(run)

    def _drop_unless(self, fetched: _Fetched | None, workload_id: str) -> None:
        """Where not everything is trusted, what the server no longer shows is no longer here: it
        may have been withdrawn, or its key revoked. Not before this host's own are sent."""
        if not self._read_only and len(self._outbox):
            return
        runs = {run.id for run in self._own.runs(workload_id)}
        trials = {trial.id for trial in self._own.trials(workload_id, all=True)}
        shown = set() if fetched is None else {run.id for run in fetched.history}
        tried = set() if fetched is None else {trial.id for trial in fetched.part.trials}
        if not (runs <= shown and trials <= tried):
            self._own.gc(workloads=[workload_id])

    def _send_some(self, server: PostgresStore) -> float | None:
        """One batch; when to be called again, or None where nothing is left."""
        if self._read_only:
            return None
        if (pause_s := self._paused_until - time.monotonic()) > 0:
            return pause_s
        with self._outbox.sending() as mine:
            entries = self._outbox.oldest(_BATCH)
            if not mine:
                return 0.2 if entries else None
            if not entries:
                return None
            try:
                try:
                    receive(server, entries)
                except (ServerAwayError, NotNowError):
                    raise
                except StoreError:
                    self._send_singly(server, entries)
                else:
                    self._outbox.remove(entry.n for entry in entries)
            except NotNowError as reason:
                return self._pause(reason)
            if self._pause_s:
                self._pause_s = 0.0
                logger.warning("store %s takes results again", self.location)
            return 0.0

    def _pause(self, reason: NotNowError) -> float:
        """Nothing is sent for a while, and nothing is lost; the server can still be read."""
        if not self._pause_s:
            logger.warning("%s; results are kept here and sent later", reason)
        self._pause_s = min(_LAST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause_s))
        self._paused_until = time.monotonic() + self._pause_s
        return self._pause_s

    def _send_singly(self, server: PostgresStore, entries: Sequence[OutboxEntry]) -> None:
        """So that what the server refuses does not hold up the rest."""
        for entry in entries:
            try:
                receive(server, [entry])
            except (ServerAwayError, NotNowError):
                raise
            except StoreError as reason:
                self._outbox.refuse(entry, str(reason))
                logger.warning("a %s was refused and is kept here: %s", entry.kind, reason)
            else:
                self._outbox.remove([entry.n])


@dataclass(frozen=True)
class _Fetched:
    """What a server knows of one workload. Its runs are not in `part`: merged runs would be
    strangers to each other, while those of a shared store are one history, oldest first, and are
    saved as they are."""

    part: Contents
    history: Sequence[Run]


def _fetched_from(server: PostgresStore, workload_id: str) -> _Fetched | None:
    """As the server shows it to this process; None where it shows nothing."""
    workload = server.workload(workload_id)
    if workload is None:
        return None
    every, latest, runs = server.everything(workload_id)
    standing = tuple(trial.id for trial in latest)
    return _Fetched(Contents(workload, tuple(every), standing, ()), runs[::-1])


def receive(store: PostgresStore, entries: Sequence[OutboxEntry]) -> None:
    """All or none. A trial that comes late does not stand for its config if a younger one is there,
    and a run that has ended stays as it is. A run that chose a config is the choice if
    nobody has had the lease since; without a lease, if there is no choice yet. Else it is kept as
    one that was cut short, so that only its trials count."""
    things = [(entry.kind, entry.thing()) for entry in entries]
    tokens = {entry.thing().id: entry.token for entry in entries if entry.kind == "run"}
    trials = [thing for kind, thing in things if kind == "trial"]
    signed = {
        thing.id: entry.signature
        for entry, (kind, thing) in zip(entries, things, strict=True)
        if kind in ("trial", "run") and entry.signature
    }

    def work(to: PostgresSession) -> None:
        _lock_all(to, things)
        for kind, thing in things:
            if kind == "run" and not _is_over(to, thing):
                chooses = _may_choose(to, thing, tokens[thing.id])
                to.save_run(thing if chooses else _late(thing), signed.get(thing.id))
        to.take_trials(trials, _standing(trials), signed)
        for kind, thing in things:
            if kind == "timeline":
                run_id, timeline = thing
                to.save_timeline(run_id, timeline.packed())
            elif kind == "miss":
                to.miss(thing)
            elif kind == "forget":
                to.forget_missed(thing)

    store.write(work)


def _lock_all(to: PostgresSession, things: Sequence[tuple[str, Any]]) -> None:
    """Everybody in one order, so that two batches never wait for each other."""
    brought: list[Workload] = []
    named = set()
    for kind, thing in things:
        if kind in ("workload", "run"):
            brought.append(thing if kind == "workload" else thing.workload)
        elif kind == "trial":
            named.add(thing.workload_id)
    for workload in sorted(brought, key=lambda one: one.id):
        to.put_workload(workload)
    to.lock(named | {workload.id for workload in brought})


def _may_choose(to: PostgresSession, run: Run, token: int | None) -> bool:
    if not run.chose:
        return True
    if token is None:
        return to.row("HAS_CHOICE", workload=run.workload.id, run=run.id) is None
    last = to.row("LAST_TOKEN", workload=run.workload.id)
    return last is None or int(last[0]) == token


def _late(run: Run) -> Run:
    return replace(run, outcome=Outcome.INTERRUPTED)


def _standing(trials: Sequence[Trial]) -> list[str]:
    latest = {(trial.workload_id, trial.config.id): trial.id for trial in trials}
    return list(latest.values())


def _is_over(to: PostgresSession, run: Run) -> bool:
    known = to.run(run.id)
    return known is not None and known.outcome is not Outcome.RUNNING


# A holder that is gone is replaced after this long. It is renewed three times as often.
LEASE_S = 10.0


def take_lease(
    store: PostgresStore, workload_id: str, process: str, seconds: float
) -> int | LeaseHeld:
    """The token of the lease, or who has it. Those who wait ask often, and so only read first."""

    def holder(session: PostgresSession) -> LeaseHeld | None:
        held = session.row("LEASE_HOLDER", workload=workload_id)
        return None if held is None else LeaseHeld(str(held[0]), float(held[1]))

    def take(session: PostgresSession) -> int | LeaseHeld:
        held = holder(session)
        if held is not None:
            return held
        asked = {"workload": workload_id, "process": process, "seconds": seconds}
        row = session.row("TAKE_LEASE", **asked)
        return int(row[0]) if row is not None else holder(session) or LeaseHeld("", 0.0)

    return store.at_once(take)


def renew_lease(store: PostgresStore, workload_id: str, token: int, seconds: float) -> bool:
    asked = {"workload": workload_id, "token": token, "seconds": seconds}
    return store.change("RENEW_LEASE", **asked) > 0


class HeldLease:
    """`renew` says whether it is still ours, or raises where the server is away: then it is tried
    again, and the database decides. `end` is called once, with whether it was lost."""

    def __init__(
        self, token: int, seconds: float, renew: Callable[[], bool], end: Callable[[], None]
    ) -> None:
        self.token = token
        self._renew, self._end = renew, end
        self._seconds = seconds
        self._stop = threading.Event()
        self._lost = False
        threading.Thread(target=self._keep, name="whet-lease", daemon=True).start()

    @property
    def lost(self) -> bool:
        return self._lost

    def release(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._end()

    def _keep(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            try:
                ours = self._renew()
            except Exception:  # away for now
                continue
            if not ours:
                self._lost = True
                logger.warning("a lease was lost to another host; results are kept as trials")
                return

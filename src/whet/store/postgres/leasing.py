"""Leases in the database: its clock, a token that only grows, and a thread that renews."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from whet.store.leases import LeaseHeld
from whet.store.postgres.connections import Connection
from whet.store.postgres.store import PostgresStore

logger = logging.getLogger("whet")

# A holder that is gone is replaced after this long. It is renewed three times as often.
LEASE_S = 10.0


def take_lease(
    store: PostgresStore, workload_id: str, process: str, seconds: float
) -> int | LeaseHeld:
    """The token of the lease, or who has it. Those who wait ask often, and so only read first."""
    sql = store.statements
    asked = {"id": workload_id, "process": process, "seconds": seconds}

    def holder(db: Connection) -> LeaseHeld | None:
        held = db.execute(sql.LEASE_HOLDER, (workload_id,)).fetchone()
        return None if held is None else LeaseHeld(str(held[0]), float(held[1]))

    def take(db: Connection) -> int | LeaseHeld:
        held = holder(db)
        if held is not None:
            return held
        row = db.execute(sql.TAKE_LEASE, asked).fetchone()
        return int(row[0]) if row is not None else holder(db) or LeaseHeld("", 0.0)

    return store.at_once(take)


def renew_lease(store: PostgresStore, workload_id: str, token: int, seconds: float) -> bool:
    asked = {"id": workload_id, "token": token, "seconds": seconds}
    return store.change("RENEW_LEASE", asked) > 0


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

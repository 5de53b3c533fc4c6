"""Outages of a PostgreSQL server, and holders of leases that die. Parts of `postgres.py`."""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from whet.core.workload import Workload
from whet.store import open_store
from whet.store.opening import STORE_WAIT_S
from whet.store.postgres.local_first import LocalFirstStore
from whet.store.protocol import LeaseHeld
from whet.testing.samples import a_trial, a_workload

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import CutProxy, PostgresServer

NAMESPACE = "outages"
OUTAGE_S = 2.0
# How many leases are held at once, by a process each.
HOLDERS = 10
WORKLOAD = a_workload()


def outages(server: PostgresServer, times: int) -> dict[str, float]:
    """So many of each kind, while a host goes on writing and looking up keys that it has not met.

    `longest_wait_ms` is the longest that any call waited for the server, `waits_per_outage` how
    many did in vain; `stated_ms` is what they may. `longest_call_ms` has the work on the host's own
    disk in it."""
    report: dict[str, float] = {"stated_ms": 1e3 * STORE_WAIT_S}
    with CutProxy(server.port) as network:
        kinds: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "killed": (server.kill, server.start),
            "paused": (server.pause, server.resume),
            "cut": (network.cut, network.mend),
            "silenced": (network.silence, network.mend),
        }
        for name, (begin, end) in kinds.items():
            one = _Outages(server, network.url(server.url(f"{NAMESPACE}_{name}")))
            for _ in range(times):
                one.go_through(begin, end)
            report |= {f"{name}_{what}": value for what, value in one.report().items()}
    return report


class _Outages:
    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server, self._url = server, url
        self._folder = tempfile.TemporaryDirectory()
        open_store(url, direct=True).close()
        store = open_store(url, environ={"XDG_DATA_HOME": self._folder.name})
        assert isinstance(store, LocalFirstStore)
        self._store, self._written = store, list[str]()
        self._calls, self._waits, self._arrived = list[float](), list[float](), list[float]()
        self._in_vain = self._times = 0
        store.put_workload(WORKLOAD)
        self._time_waits()

    def _time_waits(self) -> None:
        link = self._store._link
        ask = link.ask

        def timed(work: Any, wait_s: float | None = None) -> Any:
            before, began = link.away, time.perf_counter()
            try:
                return ask(work, wait_s)
            except Exception:
                self._in_vain += not before
                raise
            finally:
                self._waits.append(time.perf_counter() - began)

        link.ask = timed  # type: ignore[method-assign]

    def go_through(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._times += 1
        self._work_for(0.3)
        self._until_sent()
        begin()
        self._work_for(OUTAGE_S)
        end()
        back = time.perf_counter()
        self._work_for(0.3)
        self._until_sent()
        self._arrived.append(time.perf_counter() - back)

    def _work_for(self, seconds: float) -> None:
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            number = len(self._written)
            trial = a_trial(WORKLOAD, {"BM": number})
            self._timed(partial(self._store.append, [trial]))
            self._written.append(trial.id)
            self._timed(partial(self._store.best, f"never met {number}"))
            time.sleep(0.01)

    def _timed(self, call: Callable[[], Any]) -> None:
        began = time.perf_counter()
        call()
        self._calls.append(time.perf_counter() - began)

    def _until_sent(self) -> None:
        deadline = time.perf_counter() + 300.0
        while self._store.unsent and time.perf_counter() < deadline:
            self._store._link.nudge()
            time.sleep(0.02)

    def report(self) -> dict[str, float]:
        self._store.close()
        self._folder.cleanup()
        with open_store(self._url, direct=True) as server:
            there = [trial.id for trial in server.trials(WORKLOAD.id, all=True)]
        return {
            "outages": float(self._times),
            "calls": float(len(self._calls)),
            "longest_wait_ms": 1e3 * max(self._waits),
            "waits_per_outage": self._in_vain / self._times,
            "longest_call_ms": 1e3 * max(self._calls),
            "lost": float(len(set(self._written) - set(there))),
            "twice": float(len(there) - len(set(there))),
            "arrived_after_s": max(self._arrived),
        }


def takeovers(server: PostgresServer, times: int) -> dict[str, float]:
    """A process that holds a lease is killed; how long until another host has it."""
    url = server.url("takeovers")
    open_store(url, direct=True).close()
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        while len(taken) < times:
            workloads = [a_workload(key={"M": len(taken) + n}) for n in range(HOLDERS)]
            taken += _taken_over(url, folder, workloads[: times - len(taken)])
    taken.sort()
    return {
        "killed_holders": float(len(taken)),
        "taken_over_p50_s": taken[len(taken) // 2],
        "taken_over_longest_s": taken[-1],
    }


def _taken_over(url: str, folder: str, workloads: list[Workload]) -> list[float]:
    context = multiprocessing.get_context("spawn")
    held = context.Barrier(len(workloads) + 1)
    holders = [
        context.Process(target=_hold, args=(url, f"{folder}/{one.id}", one.id, held))
        for one in workloads
    ]
    for holder in holders:
        holder.start()
    held.wait(300.0)
    found: list[float] = []
    with open_store(url, wait_s=30.0, environ={"XDG_DATA_HOME": f"{folder}/taker"}) as store:
        assert isinstance(store, LocalFirstStore)

        def take(workload_id: str) -> None:
            began = time.perf_counter()
            while isinstance(lease := store.lease(workload_id, "{}"), LeaseHeld):
                time.sleep(0.1)
            assert lease is not None
            found.append(time.perf_counter() - began)
            lease.release()

        for holder in holders:
            holder.kill()
        takers = [threading.Thread(target=take, args=(one.id,)) for one in workloads]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join()
    for holder in holders:
        holder.join()
    return found


def _hold(url: str, folder: str, workload_id: str, held: Any) -> None:
    store = open_store(url, wait_s=60.0, environ={"XDG_DATA_HOME": folder})
    assert isinstance(store, LocalFirstStore)
    lease = store.lease(workload_id, "{}")
    assert lease is not None
    assert not isinstance(lease, LeaseHeld)
    held.wait(300.0)
    time.sleep(600.0)

"""Outages of every kind, three times each: work goes on, one call waits once, and all that was
written arrives, once."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from postgres_server import CutProxy, PostgresServer
from whet.core.config import Config
from whet.store import open_store
from whet.store.postgres import link, local_first
from whet.store.postgres.local_first import LocalFirstStore
from whet.store.protocol import LeaseHeld
from whet.testing.samples import a_run, a_trial, a_workload

pytestmark = pytest.mark.medium

WORKLOAD = a_workload()
WAIT_S = 0.5

Outage = Callable[[PostgresServer, CutProxy], Any]


def host(url: str, folder: Path, name: str = "host", wait_s: float = WAIT_S) -> LocalFirstStore:
    store = open_store(url, wait_s=wait_s, environ={"XDG_DATA_HOME": str(folder / name)})
    assert isinstance(store, LocalFirstStore)
    return store


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 90.0
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


@contextmanager
def killed(server: PostgresServer, network: CutProxy) -> Iterator[None]:
    server.kill()
    yield
    server.start()


@contextmanager
def paused(server: PostgresServer, network: CutProxy) -> Iterator[None]:
    server.pause()
    began = time.monotonic()
    yield
    time.sleep(max(0.0, 2.0 - (time.monotonic() - began)))
    server.resume()


@contextmanager
def cut(server: PostgresServer, network: CutProxy) -> Iterator[None]:
    network.cut()
    yield
    network.mend()


@contextmanager
def silenced(server: PostgresServer, network: CutProxy) -> Iterator[None]:
    network.silence()
    yield
    network.mend()


class CountedWait(threading.Event):
    """Of those who wait for an answer of the server: how long they would, and who did in vain."""

    asked: list[float]
    in_vain = 0

    def wait(self, timeout: float | None = None) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return super().wait(timeout)
        assert timeout is not None
        CountedWait.asked.append(timeout)
        found = super().wait(timeout)
        CountedWait.in_vain += not found
        return found


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> type[CountedWait]:
    CountedWait.asked, CountedWait.in_vain = [], 0

    def counted(self: Any, work: Any) -> None:
        self.work, self.done = work, CountedWait()
        self.answer = self.error = None

    monkeypatch.setattr(link._Job, "__init__", counted)
    return CountedWait


@pytest.mark.parametrize("outage", [killed, paused, cut, silenced])
def test_work_goes_on_and_arrives_once(
    own_postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    waits: type[CountedWait],
    outage: Outage,
) -> None:
    monkeypatch.setattr(link, "SILENT_S", 1.0)
    monkeypatch.setattr(link, "LAST_RETRY_S", 1.0)
    direct = own_postgres.url("team")
    written: list[str] = []

    def work(store: LocalFirstStore, number: int) -> None:
        trials = [a_trial(WORKLOAD, {"BM": number, "n": n}) for n in range(5)]
        for trial in trials:
            assert store.append([trial]) == 1
            assert store.latest(WORKLOAD.id, trial.config.id) == trial
        written.extend(trial.id for trial in trials)

    with CutProxy(own_postgres.port) as network:
        store = host(network.url(direct), tmp_path)
        store.put_workload(WORKLOAD)
        for round in range(3):
            work(store, 10 * round)
            assert eventually(lambda: store.unsent == 0 and not store._link.away)
            before = waits.in_vain
            with outage(own_postgres, network):
                for number in range(4):
                    assert store.best(f"unknown {round} {number}") is None
                work(store, 10 * round + 1)
                assert waits.in_vain - before <= 1
                assert store._link.away
            work(store, 10 * round + 2)
            # Whoever writes looks after a connection that has gone silent.
            assert eventually(lambda: nudged(store) and store.unsent == 0)
        assert max(waits.asked) <= WAIT_S
        store.close()
    with open_store(direct, direct=True) as server:
        there = [trial.id for trial in server.trials(WORKLOAD.id, all=True)]
    assert sorted(there) == sorted(written)


def nudged(store: LocalFirstStore) -> bool:
    store._link.nudge()
    return True


@pytest.mark.whole
@pytest.mark.parametrize("outage", [killed, paused, cut])
def test_after_an_outage_one_host_has_the_lease_and_its_choice_counts(
    own_postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outage: Outage
) -> None:
    """The lease of a second ends during each outage, so that both may think they have it."""
    monkeypatch.setattr(local_first, "LEASE_S", 1.0)
    monkeypatch.setattr(link, "LAST_RETRY_S", 1.0)
    direct = own_postgres.url("team")
    with CutProxy(own_postgres.port) as network:
        one = host(network.url(direct), tmp_path, "one", wait_s=20.0)
        two = host(direct, tmp_path, "two", wait_s=20.0)
        for round in range(3):
            workload = a_workload(key={"M": round})
            assert eventually(lambda: not one._link.away and not two._link.away)
            lease = one.lease(workload.id, "{}")
            assert lease is not None
            assert not isinstance(lease, LeaseHeld)
            with outage(own_postgres, network):
                time.sleep(1.1)
            finish(one, workload, best=1, started=100.0)
            taken = two.lease(workload.id, "{}")
            if taken is not None and not isinstance(taken, LeaseHeld):
                if two.best(workload.id) is None:  # as every tuning asks once it has its turn
                    finish(two, workload, best=2, started=200.0)
                taken.release()
            lease.release()
            for store in (one, two):
                assert eventually(lambda s=store: nudged(s) and s.unsent == 0)
            with open_store(direct, direct=True) as server:
                chose = [run.best for run in server.runs(workload.id) if run.chose]
                best = server.best(workload.id)
            assert best is not None
            assert chose in ([Config(BM=1)], [Config(BM=2)])
            assert best.config == chose[0]
        one.close()
        two.close()


def finish(store: LocalFirstStore, workload: Any, best: int, started: float) -> None:
    store.save_run(a_run(workload, {"BM": best}, started=started))
    store.append([a_trial(workload, {"BM": best}, created=started)])


def test_a_process_waits_once_for_a_server_that_is_silent(
    own_postgres: PostgresServer, tmp_path: Path, waits: type[CountedWait]
) -> None:
    """However often it opens the store, and though something waits to be sent."""
    with CutProxy(own_postgres.port) as network:
        url = own_postgres.url("team").replace(str(own_postgres.port), str(network.port))
        with host(url, tmp_path) as store:
            store.put_workload(WORKLOAD)
            assert eventually(lambda: store.unsent == 0)
        network.silence()
        in_vain = []
        for n in range(5):
            with host(url, tmp_path) as store:
                store.append([a_trial(WORKLOAD, {"BM": n})])
                assert store.best(WORKLOAD.id) is not None
            in_vain.append(waits.in_vain)
        assert in_vain == [in_vain[0]] * 5
        network.mend()
        with host(url, tmp_path) as store:
            assert eventually(lambda: store.unsent == 0)


def test_a_closed_store_does_not_keep_others_from_sending(
    own_postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread hangs in the middle of sending, on a connection that will be silent for ever."""
    monkeypatch.setattr(link, "SILENT_S", 0.5)
    monkeypatch.setattr(local_first, "_CLOSE_S", 0.1)
    with CutProxy(own_postgres.port) as network:
        url = network.url(own_postgres.url("team"))
        with host(url, tmp_path) as store:
            store.put_workload(WORKLOAD)
            assert eventually(lambda: store.unsent == 0)
            network.silence()
            store.append([a_trial(WORKLOAD, {"BM": 1})])
            assert eventually(lambda: _is_locked(tmp_path))
        network.mend()
        link._outages.clear()  # as in another process
        with host(url, tmp_path, wait_s=20.0) as store:
            assert eventually(lambda: store.unsent == 0)


def _is_locked(folder: Path) -> bool:
    [lock] = folder.rglob("sending.lock")
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

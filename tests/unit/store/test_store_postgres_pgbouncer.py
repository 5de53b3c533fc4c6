"""A shared store behind PgBouncer, which hands every transaction to any session of the server."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from postgres_server import PgBouncer, PostgresServer, new_namespace
from whet.core.config import Config
from whet.store import SqliteStore, open_store
from whet.store.postgres.local_first import LocalFirstStore, renew_lease, take_lease
from whet.store.postgres.store import PostgresStore
from whet.store.postgres.verified import promote
from whet.store.protocol import LeaseHeld
from whet.testing.samples import a_run, a_trial, a_workload

pytestmark = pytest.mark.medium

WORKLOAD = a_workload()


def direct(url: str) -> PostgresStore:
    store = open_store(url, direct=True)
    assert isinstance(store, PostgresStore)
    return store


def test_many_clients_share_few_sessions_and_lose_and_double_nothing(
    pgbouncer: PgBouncer, postgres_server: PostgresServer
) -> None:
    url, clients = f"{pgbouncer.url(new_namespace())}&application_name=pooled", 16
    ready, most = threading.Barrier(clients), []
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with direct(url) as store:
                store.put_workload(WORKLOAD)
                ready.wait(60.0)
                for n in range(10):
                    store.append([a_trial(WORKLOAD, {"BM": number, "n": n})])
                    assert store.latest(WORKLOAD.id, Config(BM=number, n=n).id) is not None
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        [(sessions,)] = postgres_server.sql(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pooled'"
        )
        most.append(sessions)
        time.sleep(0.01)
    assert failed == []
    assert max(most) <= 4
    with direct(url) as store:
        assert len(store.trials(WORKLOAD.id, all=True)) == 10 * clients


def test_leases_merges_promotions_and_sweeps_need_no_session(
    pgbouncer: PgBouncer, tmp_path: Path
) -> None:
    url = pgbouncer.url(new_namespace())
    local = SqliteStore(tmp_path / "mine.db")
    local.save_run(a_run(WORKLOAD, {"BM": 1}))
    local.append([a_trial(WORKLOAD, {"BM": 1}), a_trial(WORKLOAD, {"BM": 1})])
    with direct(url) as one, direct(url) as two:
        token = take_lease(one, WORKLOAD.id, "{}", 60.0)
        assert isinstance(token, int)
        assert isinstance(take_lease(two, WORKLOAD.id, "{}", 60.0), LeaseHeld)
        assert renew_lease(one, WORKLOAD.id, token, 0.0)
        assert two.merge(local).trials == 2
        assert promote(one, [WORKLOAD])[0].changed
        assert direct(f"{url}&trust=promoted").best(WORKLOAD.id) == local.best(WORKLOAD.id)
        assert one.gc(superseded=True).trials == 1
    assert PostgresStore.migrate(url)[1] == PostgresStore.prepare(url)[1]


def test_hosts_share_results_through_it(pgbouncer: PgBouncer, tmp_path: Path) -> None:
    url = pgbouncer.url(new_namespace())
    for name in ("one", "two"):
        environ = {"XDG_DATA_HOME": str(tmp_path / name)}
        with open_store(url, wait_s=20.0, environ=environ) as store:
            assert isinstance(store, LocalFirstStore)
            if name == "one":
                store.save_run(a_run(WORKLOAD, {"BM": 1}))
                store.append([a_trial(WORKLOAD, {"BM": 1})])
            best = store.best(WORKLOAD.id)
            assert best is not None
            assert best.config == Config(BM=1)

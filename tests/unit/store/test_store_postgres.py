"""The store on PostgreSQL, on a real server: what the contract does not say."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postgres_server import USER, PostgresServer, new_namespace
from whet._version import __version__
from whet.core.errors import StoreError
from whet.store import SqliteStore, Store, open_store
from whet.store.faults import ServerAwayError
from whet.store.postgres import schema
from whet.store.postgres.address import parse_address
from whet.store.postgres.local_first import take_lease
from whet.store.postgres.schema import grant
from whet.store.postgres.store import PostgresStore
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import die_if_stuck, refusal

pytestmark = pytest.mark.medium

made: list[Store] = []


def open_direct(where: str, **how: Any) -> Store:
    made.append(open_store(where, direct=True, **how))
    return made[-1]


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    """A server has only so many connections."""
    yield
    while made:
        made.pop().close()


def opened(url: str, **how: Any) -> PostgresStore:
    store = open_direct(url, **how)
    assert isinstance(store, PostgresStore)
    return store


def test_namespaces_know_nothing_of_each_other(postgres_server: PostgresServer) -> None:
    one, two = (open_direct(postgres_server.url(new_namespace())) for _ in "ab")
    one.save_run(a_run(a_workload()))
    assert two.workloads() == []


def test_every_trial_says_who_wrote_it(postgres_url: str) -> None:
    store, workload = opened(postgres_url), a_workload()
    store.put_workload(workload)
    trial = a_trial(workload)
    store.append([trial])
    writer = store.writers(workload.id)[trial.id]
    assert (writer.role, writer.host, writer.whet) == (USER, os.uname().nodename, __version__)
    assert writer.os_user


def test_to_be_read_a_store_must_be_there_and_reading_makes_none(postgres_url: str) -> None:
    assert "whet store init" in refusal(lambda: open_direct(postgres_url, read_only=True))
    assert "whet store init" in refusal(lambda: open_direct(postgres_url, read_only=True))


def test_a_read_only_store_refuses_to_write(postgres_url: str) -> None:
    open_direct(postgres_url).close()
    store = open_direct(postgres_url, read_only=True)
    assert store.read_only
    assert "read-only" in refusal(lambda: store.put_workload(a_workload()))
    assert "read-only" in refusal(lambda: store.merge(store))


def test_many_that_meet_an_empty_namespace_make_one_store(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    workload = a_workload()

    def work(number: int) -> None:
        with open_direct(postgres_url) as store:
            store.put_workload(workload)
            store.append([a_trial(workload, {"BM": number})])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(open_direct(postgres_url).trials(workload.id)) == 8
    namespace = postgres_url.partition("namespace=")[2]
    assert postgres_server.sql(f"SELECT count(*) FROM {namespace}.versions") == [(1,)]


def test_processes_that_append_the_same_and_different_trials_lose_and_double_none(
    postgres_url: str,
) -> None:
    workload = a_workload()
    same = [a_trial(workload, {"BM": n}) for n in range(40)]
    with open_direct(postgres_url) as store:
        store.put_workload(workload)
    pids = []
    for worker in range(4):
        pid = os.fork()
        if pid == 0:
            die_if_stuck(60)
            with open_direct(postgres_url) as mine:
                for trial in same:
                    mine.append([trial, a_trial(workload, {"worker": worker, "of": trial.id})])
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
    with open_direct(postgres_url) as store:
        ids = [trial.id for trial in store.trials(workload.id, all=True)]
        assert len(ids) == len(set(ids)) == 40 + 4 * 40
        assert len(store.trials(workload.id)) == 40 + 4 * 40


def test_a_killed_server_loses_nothing_that_was_committed(own_postgres: PostgresServer) -> None:
    store, workload = open_direct(own_postgres.url("team")), a_workload()
    store.put_workload(workload)
    trials = [a_trial(workload, {"BM": n}) for n in range(3)]
    for trial in trials:
        store.append([trial])
        own_postgres.kill()
        with pytest.raises(ServerAwayError, match="cannot be reached"):
            store.trials(workload.id)
        own_postgres.start()
    assert store.trials(workload.id) == trials


def test_a_restart_between_two_calls_is_not_noticed(own_postgres: PostgresServer) -> None:
    store, workload = open_direct(own_postgres.url("team")), a_workload()
    store.put_workload(workload)
    own_postgres.kill()
    own_postgres.start()
    assert store.append([a_trial(workload)]) == 1


def test_a_wrong_password_is_told_in_one_line_that_does_not_show_it(
    postgres_server: PostgresServer,
) -> None:
    role = new_namespace()
    postgres_server.scram_role(role, "right")
    url = postgres_server.url("team", user=f"{role}:wr0ng")
    with pytest.raises(StoreError, match="check the user and password") as raised:
        open_direct(url)
    assert "wr0ng" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_the_password_may_come_from_the_environment(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    role, namespace = new_namespace(), new_namespace()
    postgres_server.scram_role(role, "fr0m-env")
    postgres_server.sql(f"GRANT CREATE ON DATABASE whet TO {role}")
    monkeypatch.setenv("PGPASSWORD", "fr0m-env")
    with open_direct(postgres_server.url(namespace, user=role)) as store:
        store.put_workload(a_workload())
        assert "fr0m-env" not in repr(store) + store.location


def test_a_service_file_names_the_server(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "services"
    lines = ("[team]", "host=127.0.0.1", f"port={postgres_server.port}", f"user={USER}")
    file.write_text("\n".join((*lines, "dbname=whet\n")))
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    with open_direct(f"postgresql://?service=team&namespace={new_namespace()}") as store:
        store.put_workload(a_workload())
        assert len(store.workloads()) == 1


def test_an_older_client_works_beside_a_newer_schema_that_allows_it(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    open_direct(postgres_url).close()
    namespace = postgres_url.partition("namespace=")[2]
    newer = schema.SCHEMA_VERSION + 1
    postgres_server.sql(
        f"ALTER TABLE {namespace}.trials ADD COLUMN later bytea",
        f"INSERT INTO {namespace}.versions VALUES ({newer}, {schema.SCHEMA_VERSION})",
    )
    store, workload = open_direct(postgres_url), a_workload()
    store.put_workload(workload)
    assert store.append([a_trial(workload)]) == 1
    assert len(store.trials(workload.id)) == 1


def test_an_older_client_is_told_to_upgrade_where_the_schema_does_not_allow_it(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    open_direct(postgres_url).close()
    namespace = postgres_url.partition("namespace=")[2]
    newer = schema.SCHEMA_VERSION + 1
    postgres_server.sql(f"INSERT INTO {namespace}.versions VALUES ({newer}, {newer})")
    message = refusal(lambda: open_direct(postgres_url))
    assert "upgrade whet" in message
    assert "\n" not in message


def test_a_newer_client_reads_an_older_schema_and_is_told_to_migrate_before_it_writes(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = a_workload()
    open_direct(postgres_url).save_run(a_run(workload))
    before = schema.SCHEMA_VERSION
    monkeypatch.setattr(schema, "SCHEMA_VERSION", before + 1)

    def step(db: Any, namespace: str) -> None:
        db.execute(f"ALTER TABLE {namespace}.runs ADD COLUMN more text")

    monkeypatch.setitem(schema.STEPS, before, step)
    assert len(open_direct(postgres_url, read_only=True).runs(workload.id)) == 1
    assert "whet store init --upgrade" in refusal(lambda: open_direct(postgres_url))
    assert PostgresStore.migrate(postgres_url) == (before, before + 1)
    assert PostgresStore.migrate(postgres_url) == (before + 1, before + 1)
    open_direct(postgres_url).save_run(a_run(workload))


def test_it_merges_with_sqlite_both_ways(postgres_url: str, tmp_path: Path) -> None:
    shared, local = open_direct(postgres_url), SqliteStore(tmp_path / "local.db")
    here, there = a_workload(key={"M": 1}), a_workload(key={"M": 2})
    local.save_run(a_run(here, {"BM": 1}))
    local.append([a_trial(here, {"BM": 1})])
    shared.save_run(a_run(there, {"BM": 2}))
    shared.append([a_trial(there, {"BM": 2})])
    assert (shared.merge(local).trials, local.merge(shared).trials) == (1, 1)
    assert (shared.merge(local).trials, local.merge(shared).trials) == (0, 0)
    for workload in (here, there):
        assert shared.best(workload.id) == local.best(workload.id) is not None
        assert shared.trials(workload.id) == local.trials(workload.id)


def test_nothing_is_prepared_on_the_server_unless_allowed(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    for url, prepared in ((postgres_url, False), (f"{postgres_url}&prepare=yes", True)):
        store = opened(url)
        for _ in range(10):
            store.best("nowhere")
        found = store.read(
            lambda session: session.db.execute(
                "SELECT count(*) FROM pg_prepared_statements"
            ).fetchone()
        )
        assert (found[0] > 0) is prepared


class TestRoles:
    """By rights of the database: what a client leaves out, it could not do either."""

    def role(self, server: PostgresServer, url: str, level: str) -> str:
        """The URL as a role of this level has it."""
        name = new_namespace()
        server.sql(f"CREATE ROLE {name} LOGIN")
        open_direct(url).close()
        grant(parse_address(url), level, name)
        return url.replace(f"{USER}@", f"{name}@")

    def test_a_reader_reads_and_cannot_write(
        self, postgres_server: PostgresServer, postgres_url: str
    ) -> None:
        workload = a_workload()
        open_direct(postgres_url).save_run(a_run(workload))
        url = self.role(postgres_server, postgres_url, "reader")
        assert len(open_direct(url, read_only=True).runs(workload.id)) == 1
        store = open_direct(url)
        for write in (
            lambda: store.put_workload(a_workload(key={"M": 9})),
            lambda: store.save_run(a_run(workload)),
            lambda: store.gc(kernel=workload.kernel),
        ):
            assert "not allow" in refusal(write)
        assert len(open_direct(postgres_url).runs(workload.id)) == 1

    def test_a_contributor_appends_and_cannot_remove_or_pose_as_another(
        self, postgres_server: PostgresServer, postgres_url: str
    ) -> None:
        workload = a_workload()
        store = opened(self.role(postgres_server, postgres_url, "contributor"))
        store.save_run(a_run(workload, {"BM": 1}))
        assert store.append([a_trial(workload, {"BM": 1}), a_trial(workload, {"BM": 1})]) == 2
        assert "not allow" in refusal(lambda: store.gc(superseded=True))
        for statement in (
            f"UPDATE {store._sql.namespace}.trials SET median_ns = 1",
            f"DELETE FROM {store._sql.namespace}.trials",
            f"INSERT INTO {store._sql.namespace}.writers (role, os_user, host, whet) "
            "VALUES ('boss', '', '', '')",
        ):
            message = refusal(lambda text=statement: store.write(lambda to: to.db.execute(text)))
            assert "not allow" in message
        assert len(store.trials(workload.id, all=True)) == 2
        roles = {writer.role for writer in store.writers(workload.id).values()}
        assert len(roles) == 1
        assert USER not in roles

    def test_a_contributor_merges_and_takes_leases(
        self, postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
    ) -> None:
        local, workload = SqliteStore(tmp_path / "local.db"), a_workload()
        local.save_run(a_run(workload, {"BM": 1}))
        local.append([a_trial(workload, {"BM": 1})])
        store = opened(self.role(postgres_server, postgres_url, "contributor"))
        assert store.merge(local).trials == 1
        assert isinstance(take_lease(store, workload.id, "{}", 5.0), int)

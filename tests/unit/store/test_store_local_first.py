"""A store of this host over one on a server: it goes on while the server is away, and what was
written meanwhile arrives, once."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest

from postgres_server import DATABASE, PostgresServer, new_namespace
from whet.core.config import Config
from whet.core.errors import StoreError
from whet.core.timeline import Timeline
from whet.core.workload import Workload
from whet.store import Store, open_store, unsent
from whet.store.postgres import connections
from whet.store.postgres.address import parse_address
from whet.store.postgres.local_first import LocalFirstStore, receive
from whet.store.postgres.outbox import OutboxEntry
from whet.store.postgres.schema import grant
from whet.store.postgres.store import PostgresStore
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import die_if_stuck, in_child, refusal

pytestmark = pytest.mark.medium

WORKLOAD = a_workload()


def host(url: str, folder: Path, name: str = "host", **how: Any) -> LocalFirstStore:
    """A host's store; `wait_s` is long where a test is not about outages."""
    environ = {"XDG_DATA_HOME": str(folder / name)}
    store = open_store(url, environ=environ, **{"wait_s": 20.0, **how})
    assert isinstance(store, LocalFirstStore)
    return store


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60.0
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def tuned(store: Store, workload: Workload = WORKLOAD, best: int = 1) -> None:
    store.save_run(a_run(workload, {"BM": best}))
    store.append([a_trial(workload, {"BM": n}) for n in (1, 2, 3)])


def test_what_one_host_tunes_another_finds(postgres_url: str, tmp_path: Path) -> None:
    with host(postgres_url, tmp_path, "one") as one:
        tuned(one, best=2)
    with host(postgres_url, tmp_path, "two") as two:
        best = two.best(WORKLOAD.id)
        assert best is not None
        assert best.config == Config(BM=2)
        pick = two.pick(WORKLOAD.id)
        assert pick is not None
        assert pick.rivals == ()


def test_what_was_read_once_is_here_without_the_server(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    url = own_postgres.url("team")
    with host(url, tmp_path, "one") as one:
        tuned(one)
    with host(url, tmp_path, "two") as two:
        before = two.trials(WORKLOAD.id)
        own_postgres.kill()
        assert two.trials(WORKLOAD.id) == before
    with host(url, tmp_path, "two", wait_s=0.05) as again:
        assert again.trials(WORKLOAD.id) == before


def test_hosts_that_tuned_apart_agree_once_both_are_sent(postgres_url: str, tmp_path: Path) -> None:
    for name, best, started in (("one", 1, 100.0), ("two", 2, 200.0)):
        with host(postgres_url, tmp_path, name) as store:
            store.put_workload(WORKLOAD)
            trials = [a_trial(WORKLOAD, {"BM": n}, created=started) for n in (1, 2)]
            store.append(trials)
            store.save_run(a_run(WORKLOAD, {"BM": best}, started=started))
    for name in ("one", "two"):
        with host(postgres_url, tmp_path, name) as store:
            assert eventually(lambda s=store: s.unsent == 0)
    with open_store(postgres_url, direct=True) as server:
        decided = server.pick(WORKLOAD.id)
    assert decided is not None
    for name in ("one", "two", "three"):
        with host(postgres_url, tmp_path, name) as store:
            store.best(WORKLOAD.id)
            assert eventually(lambda s=store: s.pick(WORKLOAD.id) == decided)
            assert eventually(lambda s=store: len(s.runs(WORKLOAD.id)) == 2)  # in a later pull


def test_a_late_trial_does_not_replace_a_younger_one(postgres_url: str, tmp_path: Path) -> None:
    young, old = a_trial(WORKLOAD, created=200.0), a_trial(WORKLOAD, created=100.0)
    for name, trial in (("one", young), ("two", old)):
        with host(postgres_url, tmp_path, name) as store:
            store.put_workload(WORKLOAD)
            store.append([trial])
    with open_store(postgres_url, direct=True) as server:
        assert server.trials(WORKLOAD.id) == [young]
        assert len(server.trials(WORKLOAD.id, all=True)) == 2


class TestOutages:
    """With work going on before, during and after. All kinds: `test_store_postgres_outages.py`."""

    def work(self, store: LocalFirstStore, number: int) -> set[str]:
        trials = [a_trial(WORKLOAD, {"BM": number, "n": n}) for n in range(5)]
        for trial in trials:
            assert store.append([trial]) == 1
            assert store.latest(WORKLOAD.id, trial.config.id) == trial
        return {trial.id for trial in trials}

    def check_all_arrived_once(self, url: str, store: LocalFirstStore, ids: set[str]) -> None:
        assert eventually(lambda: store.unsent == 0)
        with open_store(url, direct=True) as server:
            there = [trial.id for trial in server.trials(WORKLOAD.id, all=True)]
        assert len(there) == len(set(there))
        assert set(there) == ids

    @pytest.mark.slow
    def test_a_server_that_is_killed(
        self, own_postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        url, ids = own_postgres.url("team"), set[str]()
        with host(url, tmp_path, wait_s=0.5) as store:
            store.put_workload(WORKLOAD)
            for outage in range(3):
                ids |= self.work(store, 10 * outage)
                own_postgres.kill()
                with caplog.at_level(logging.WARNING, "whet"):
                    ids |= self.work(store, 10 * outage + 1)
                    assert eventually(lambda: store._link.away)
                    assert store.best("not-known") is None
                own_postgres.start()
                ids |= self.work(store, 10 * outage + 2)
                self.check_all_arrived_once(url, store, ids)
                assert eventually(lambda: not store._link.away)
        said = [record.message for record in caplog.records if " is away (" in record.message]
        assert len(said) == 3

    def test_it_can_be_opened_while_the_server_is_away(
        self, own_postgres: PostgresServer, tmp_path: Path
    ) -> None:
        url = own_postgres.url("team")
        open_store(url, direct=True).close()
        own_postgres.kill()
        with host(url, tmp_path, wait_s=0.5) as store:
            store.put_workload(WORKLOAD)
            ids = self.work(store, 1)
            assert store.unsent > 0
        own_postgres.start()
        with host(url, tmp_path) as store:
            self.check_all_arrived_once(url, store, ids)

    @pytest.mark.slow
    def test_what_a_killed_process_wrote_is_sent_by_the_next(
        self, own_postgres: PostgresServer, tmp_path: Path
    ) -> None:
        url = own_postgres.url("team")
        open_store(url, direct=True).close()
        own_postgres.kill()
        pid = os.fork()
        if pid == 0:
            die_if_stuck()
            store = host(url, tmp_path, wait_s=0.5)
            store.put_workload(WORKLOAD)
            store.append([a_trial(WORKLOAD, id="written-before-the-end")])
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        own_postgres.start()
        with host(url, tmp_path) as store:
            self.check_all_arrived_once(url, store, {"written-before-the-end"})

    def test_what_is_sent_twice_is_there_once(self, postgres_url: str, tmp_path: Path) -> None:
        trial = a_trial(WORKLOAD)
        with host(postgres_url, tmp_path) as store:
            store.put_workload(WORKLOAD)
            store.append([trial])
            assert eventually(lambda: store.unsent == 0)
            store._outbox.put([OutboxEntry.of(WORKLOAD), OutboxEntry.of(trial)])
            store._link.nudge()
            self.check_all_arrived_once(postgres_url, store, {trial.id})


def test_what_is_fetched_is_of_one_moment(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host appends between two statements of the reading."""
    with open_store(postgres_url, direct=True) as other:
        tuned(other)
        more = [a_trial(WORKLOAD, {"BM": 9})]
        real = psycopg.Connection.execute

        def execute(self: Any, query: Any, *rest: Any, **how: Any) -> Any:
            found = real(self, query, *rest, **how)
            if more and "FROM" in str(query) and "trials" in str(query):
                other.append([more.pop()])
            return found

        monkeypatch.setattr(psycopg.Connection, "execute", execute)
        with host(postgres_url, tmp_path) as store:
            assert len(store.trials(WORKLOAD.id)) in (3, 4)
            assert not store._link.away
    assert not more


class TestServerThatTakesNothing:
    """It answers, and what it says is about itself: nothing that was sent is at fault."""

    FAULTS: ClassVar = {
        "read-only": (
            "ALTER DATABASE {database} SET default_transaction_read_only = on",
            "ALTER DATABASE {database} RESET default_transaction_read_only",
        ),
        "forbidden": (
            "REVOKE INSERT ON {space}.trials FROM {role}",
            "GRANT INSERT ON {space}.trials TO {role}",
        ),
        "slow": ("ALTER ROLE {role} SET statement_timeout = '1ms'", "ALTER ROLE {role} RESET ALL"),
    }

    @pytest.mark.parametrize("fault", FAULTS)
    def test_results_wait_and_arrive(
        self,
        fault: str,
        own_postgres: PostgresServer,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        role, space = new_namespace(), "team"
        own_postgres.scram_role(role, "word")
        with open_store(own_postgres.url(space), direct=True) as server:
            server.put_workload(WORKLOAD)
        own_postgres.sql(
            f"GRANT USAGE ON SCHEMA {space} TO {role}",
            f"GRANT ALL ON ALL TABLES IN SCHEMA {space} TO {role}",
            f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {space} TO {role}",
        )
        url = own_postgres.url(space, user=f"{role}:word")
        names = {"role": role, "space": space, "database": DATABASE}
        begin, end = (text.format(**names) for text in self.FAULTS[fault])
        own_postgres.sql(begin)
        with caplog.at_level(logging.WARNING, "whet"), host(url, tmp_path) as store:
            store.put_workload(WORKLOAD)
            store.append([a_trial(WORKLOAD, {"BM": n}) for n in range(40)])
            assert eventually(lambda: "sent later" in caplog.text)
            store.flush(0.5)
            assert store.unsent >= 40
        own_postgres.sql("SET default_transaction_read_only = off", end)
        with host(url, tmp_path) as store:
            assert eventually(lambda: store.unsent == 0)
        with open_store(own_postgres.url(space), direct=True) as server:
            assert len(server.trials(WORKLOAD.id)) == 40


def test_an_entry_that_a_trigger_refuses_holds_up_nothing(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """It is told apart from a right that a role lacks, though the database says both alike."""
    with open_store(postgres_url, direct=True) as owner:
        tuned(owner)
        run = owner.runs(WORKLOAD.id)[0]
        owner.save_timeline(run.id, Timeline())
    role = new_namespace()
    postgres_server.sql(f"CREATE ROLE {role} LOGIN")
    grant(parse_address(postgres_url), "contributor", role)
    url = postgres_url.replace("//whet@", f"//{role}@")
    with host(url, tmp_path) as store:
        store._outbox.put([OutboxEntry.of_timeline(run.id, Timeline())])
        store.put_workload(WORKLOAD)
        store.append([a_trial(WORKLOAD, {"BM": 9})])
        assert eventually(lambda: store.unsent == 0)
        assert len(store._outbox.refused) == 1
    with open_store(postgres_url, direct=True) as server:
        assert Config(BM=9) in {trial.config for trial in server.trials(WORKLOAD.id)}


def test_what_was_refused_is_sent_again_by_the_next(postgres_url: str, tmp_path: Path) -> None:
    stranger = a_workload(kernel="stranger")
    environ = {"XDG_DATA_HOME": str(tmp_path / "host")}
    with host(postgres_url, tmp_path) as store:
        store._outbox.put([OutboxEntry.of(a_trial(stranger))])
        store._link.nudge()
        assert eventually(lambda: store.unsent == 0)
    [reason] = unsent(postgres_url, environ).refused
    assert stranger.id in reason
    with open_store(postgres_url, direct=True) as server:
        server.put_workload(stranger)
    with host(postgres_url, tmp_path) as store:
        assert eventually(lambda: store.unsent == 0)
    assert unsent(postgres_url, environ).refused == ()
    with open_store(postgres_url, direct=True) as server:
        assert len(server.trials(stranger.id)) == 1


def test_what_the_server_refuses_is_named_and_holds_up_nothing(
    postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = a_workload(kernel="stranger")
    with host(postgres_url, tmp_path) as store, caplog.at_level(logging.WARNING, "whet"):
        store._outbox.put([OutboxEntry.of(a_trial(stranger))])
        store.put_workload(WORKLOAD)
        store.append([a_trial(WORKLOAD)])
        assert eventually(lambda: store.unsent == 0)
    assert stranger.id in caplog.text
    with open_store(postgres_url, direct=True) as server:
        assert len(server.trials(WORKLOAD.id)) == 1


def test_a_wrong_password_is_said_at_once(postgres_server: PostgresServer, tmp_path: Path) -> None:
    role = new_namespace()
    postgres_server.scram_role(role, "right")
    url = postgres_server.url("team", user=f"{role}:wr0ng")
    message = refusal(lambda: host(url, tmp_path), StoreError)
    assert "user and password" in message
    assert "wr0ng" not in message


def test_a_store_that_is_only_read_fetches_and_writes_nothing(
    postgres_url: str, tmp_path: Path
) -> None:
    with host(postgres_url, tmp_path, "one") as one:
        tuned(one)
    with host(postgres_url, tmp_path, "two", read_only=True) as two:
        assert two.best(WORKLOAD.id) is not None
        assert "read-only" in refusal(lambda: two.put_workload(a_workload(key={"M": 9})))
        assert "read-only" in refusal(lambda: two.mark(None))  # type: ignore[arg-type]


def test_a_forked_child_asks_the_server_by_itself(postgres_url: str, tmp_path: Path) -> None:
    other = a_workload(key={"M": 7})
    with host(postgres_url, tmp_path, "one") as one:
        tuned(one, other)
    with host(postgres_url, tmp_path, "two") as two:
        two.put_workload(WORKLOAD)
        assert in_child(lambda: two.best(other.id) is not None and two.flush(20.0))
        assert two.append([a_trial(WORKLOAD)]) == 1
        assert two.best(other.id) is not None
        assert eventually(lambda: two.unsent == 0)


def test_closing_sends_what_is_left_though_the_first_connection_took_its_time(
    postgres_url: str, tmp_path: Path
) -> None:
    with host(postgres_url, tmp_path, wait_s=0.0001) as store:
        tuned(store)
    with open_store(postgres_url, direct=True) as server:
        assert len(server.trials(WORKLOAD.id)) == 3


@pytest.mark.slow
def test_batches_in_opposite_orders_never_wait_for_each_other(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_MOST_TRIES", 0)  # nor is a collision tried again
    workloads = [a_workload(key={"M": n}) for n in range(20)]
    failed: list[Exception] = []

    def send(order: list[Workload]) -> None:
        with open_store(postgres_url, direct=True) as server:
            assert isinstance(server, PostgresStore)
            for _ in range(10):
                runs = [OutboxEntry.of_run(a_run(one, {"BM": 1}), None) for one in order]
                trials = [OutboxEntry.of(a_trial(one, {"BM": 1})) for one in order]
                try:
                    receive(server, [*runs, *trials])
                except Exception as error:
                    failed.append(error)

    open_store(postgres_url, direct=True).close()
    threads = [threading.Thread(target=send, args=(o,)) for o in (workloads, workloads[::-1]) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_what_the_server_ended_for_another_is_done_again(postgres_url: str) -> None:
    tries = []

    def work(to: Any) -> str:
        tries.append(to)
        if len(tries) < 3:
            raise psycopg.errors.DeadlockDetected
        return "done"

    with open_store(postgres_url, direct=True) as server:
        assert isinstance(server, PostgresStore)
        assert server.write(work) == "done"


def test_somebody_with_less_patience_does_not_declare_an_outage(
    postgres_url: str, tmp_path: Path
) -> None:
    with host(postgres_url, tmp_path) as store:
        with pytest.raises(StoreError):
            store._link.ask(lambda server: time.sleep(0.3), 0.01)
        assert not store._link.away
        assert store.best(WORKLOAD.id) is None

"""A key that several hosts want is tuned by one of them, and all use what that one chose."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.core.config import Config
from whet.engine.settings import Settings
from whet.engine.turns import Turn
from whet.store import open_store
from whet.store.postgres import local_first
from whet.store.postgres.local_first import LocalFirstStore
from whet.store.protocol import LeaseHeld
from whet.testing.samples import a_run, a_trial, a_workload

pytestmark = pytest.mark.medium

WORKLOAD = a_workload()


def host(url: str, folder: Path, name: str) -> LocalFirstStore:
    store = open_store(url, wait_s=20.0, environ={"XDG_DATA_HOME": str(folder / name)})
    assert isinstance(store, LocalFirstStore)
    return store


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60.0
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def _tune(url: str, folder: Path, name: str, answers: Any) -> None:
    def slow(step: int) -> None:
        time.sleep(0.002 * step)

    target = whet.function(slow, {"step": [1, 2, 3]}, key={}, name="slow", isolate=False)
    with host(url, folder, name) as store:
        result = whet.tune(target, store=store, settings=Settings(agree_wait_s=100.0))
        answers.put((name, result.source, dict(result.config)))


def test_of_several_hosts_one_tunes_and_all_agree(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_first, "_CLOSE_S", 60.0)
    open_store(postgres_url, direct=True).close()
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    hosts = [
        fork.Process(target=_tune, args=(postgres_url, tmp_path, f"host{n}", answers))
        for n in range(4)
    ]
    for one in hosts:
        one.start()
    found = [answers.get(timeout=100.0) for _ in hosts]
    for one in hosts:
        one.join()
    assert sorted(source for _, source, _ in found) == ["stored"] * 3 + ["tuned"]
    assert len({tuple(config.items()) for _, _, config in found}) == 1
    with open_store(postgres_url, direct=True) as server:
        [summary] = server.workloads()
        assert len(server.runs(summary.workload.id)) == 1


def test_others_see_who_has_the_lease(postgres_url: str, tmp_path: Path) -> None:
    with host(postgres_url, tmp_path, "one") as one, host(postgres_url, tmp_path, "two") as two:
        one.put_workload(WORKLOAD)
        with Turn(one, WORKLOAD.id) as mine, Turn(two, WORKLOAD.id) as theirs:
            assert mine.take()
            assert not theirs.take()
            assert theirs.holder.pid == os.getpid()
            assert theirs.holder.since is not None
        with Turn(two, WORKLOAD.id) as later:
            assert later.take()


def test_what_was_found_is_sent_before_anybody_else_may_tune(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with host(postgres_url, tmp_path, "one") as one, host(postgres_url, tmp_path, "two") as two:
        with Turn(one, WORKLOAD.id) as turn:
            assert turn.take()
            monkeypatch.setattr(LocalFirstStore, "flush", lambda self, seconds: False)
        assert isinstance(two.lease(WORKLOAD.id, "{}"), LeaseHeld)
        monkeypatch.undo()
        with Turn(one, WORKLOAD.id) as turn:
            assert turn.wait(60.0)
        assert not isinstance(two.lease(WORKLOAD.id, "{}"), LeaseHeld)


def test_a_killed_holder_is_replaced(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_first, "LEASE_S", 3.0)
    open_store(postgres_url, direct=True).close()
    with host(postgres_url, tmp_path, "two") as two:
        for attempt in range(2):
            ready, told = os.pipe()
            pid = os.fork()
            if pid == 0:
                lease = host(postgres_url, tmp_path, f"one{attempt}").lease(WORKLOAD.id, "{}")
                os.write(told, b"1" if lease is not None else b"0")
                signal.pause()
            assert os.read(ready, 1) == b"1"
            assert isinstance(two.lease(WORKLOAD.id, "{}"), LeaseHeld)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            taken = two.lease(WORKLOAD.id, "{}")
            while isinstance(taken, LeaseHeld):
                time.sleep(0.05)
                taken = two.lease(WORKLOAD.id, "{}")
            assert taken is not None
            taken.release()


def test_a_lease_is_renewed_while_its_holder_lives(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_first, "LEASE_S", 3.0)
    with host(postgres_url, tmp_path, "one") as one, host(postgres_url, tmp_path, "two") as two:
        lease = one.lease(WORKLOAD.id, "{}")
        time.sleep(5.0)
        assert isinstance(two.lease(WORKLOAD.id, "{}"), LeaseHeld)
        assert lease is not None
        assert not isinstance(lease, LeaseHeld)
        assert not lease.lost


def chosen(store: LocalFirstStore) -> Config | None:
    best = store.best(WORKLOAD.id)
    return None if best is None else best.config


def test_what_a_late_holder_brings_is_kept_as_trials_and_is_not_the_choice(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(store: LocalFirstStore, best: int, started: float) -> None:
        store.save_run(a_run(WORKLOAD, {"BM": best}, started=started))
        store.append([a_trial(WORKLOAD, {"BM": best}, created=started)])
        assert store.flush(20.0)

    with host(postgres_url, tmp_path, "late") as late, host(postgres_url, tmp_path, "two") as two:
        assert late.lease(WORKLOAD.id, "{}") is not None
        with open_store(postgres_url, direct=True) as server:
            server.write(  # type: ignore[attr-defined]
                lambda to: to.db.execute(
                    f"UPDATE {to.sql.namespace}.leases SET until = clock_timestamp()"
                )
            )
        assert not isinstance(two.lease(WORKLOAD.id, "{}"), LeaseHeld)
        finish(two, best=2, started=100.0)
        finish(late, best=1, started=200.0)
    for name in ("late", "two", "three"):
        with host(postgres_url, tmp_path, name) as store:
            store.best(WORKLOAD.id)
            assert eventually(lambda s=store: len(s.trials(WORKLOAD.id)) == 2)
            assert eventually(lambda s=store: chosen(s) == Config(BM=2))


def test_without_a_server_there_is_no_lease_and_work_goes_on(
    own_postgres: Any, tmp_path: Path
) -> None:
    url = own_postgres.url("team")
    with host(url, tmp_path, "one") as one:
        own_postgres.kill()
        with Turn(one, WORKLOAD.id) as turn:
            assert turn.take()

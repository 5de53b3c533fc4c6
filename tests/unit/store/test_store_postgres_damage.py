"""Rows of a shared store that cannot be read: one writer's must not stop all the readers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postgres_server import PostgresServer
from whet.core.config import Config
from whet.core.miss import Miss
from whet.store import open_store
from whet.store.postgres.address import with_trust
from whet.store.postgres.signing import SigningKey
from whet.store.postgres.store import PostgresStore
from whet.store.postgres.verified import promote
from whet.store.upkeep import counts_of, faults_in
from whet.testing.samples import a_run, a_trial, a_workload

pytestmark = pytest.mark.medium

GOOD, BAD = a_workload(), a_workload(key={"M": 9})
Change = Callable[[str], None]


@pytest.fixture
def open_as(postgres_url: str) -> Iterator[Callable[..., PostgresStore]]:
    """The store, read as its parameters say."""
    made: list[PostgresStore] = []

    def opened(**trust: str | None) -> PostgresStore:
        store = open_store(with_trust(postgres_url, trust), direct=True)
        assert isinstance(store, PostgresStore)
        made.append(store)
        return store

    yield opened
    for store in made:
        store.close()


@pytest.fixture
def change(postgres_server: PostgresServer, postgres_url: str) -> Change:
    namespace = postgres_url.partition("namespace=")[2]

    def run(statement: str) -> None:
        postgres_server.sql(statement.replace("{s}", namespace))

    return run


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    private, trusted = tmp_path / "key.pem", tmp_path / "trusted"
    trusted.write_text(SigningKey.create(str(private)).line("tuner1") + "\n")
    return {"signing_key": str(private), "trusted_keys": str(trusted)}


def fill(store: PostgresStore) -> None:
    """Both workloads have a choice, BM=2, and it is promoted."""
    for workload in (GOOD, BAD):
        run = a_run(workload, {"BM": 2}, started=100.0)
        store.save_run(run)
        store.append([a_trial(workload, {"BM": n}, 10.0 * n, run_id=run.id) for n in (1, 2, 3)])
    promote(store, [GOOD, BAD])


def chosen(store: PostgresStore, workload_id: str = GOOD.id) -> Config | None:
    best = store.best(workload_id)
    return None if best is None else best.config


@pytest.mark.parametrize(
    "damage",
    [
        "left(body, -1) || ',\"origin\":5}'",
        "replace(body, '\"M\":9', '\"M\":9.0')",
        "'[' || body",
    ],
)
def test_every_reader_steps_over_a_workload_that_cannot_be_read(
    open_as: Callable[..., PostgresStore],
    change: Change,
    keys: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    fill(open_as(signing_key=keys["signing_key"]))
    change(f"UPDATE {{s}}.workloads SET body = {damage} WHERE id = '{BAD.id}'")
    trusted = {"trusted_keys": keys["trusted_keys"]}
    for trust in ({}, {"trust": "promoted"}, trusted, {"trust": "promoted", **trusted}):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "whet"):
            reader = open_as(**trust)
            assert [one.workload for one in reader.workloads()] == [GOOD]
            assert (reader.workload(BAD.id), reader.runs(BAD.id)) == (None, [])
            near = reader.match(a_workload(key={"M": 8}))
            assert near is not None
            assert near.workload == GOOD
            assert chosen(reader) == Config(BM=2)
        assert caplog.text.count("workload row 2 is not valid") == 1
        assert "workload row 2 is not valid" in "\n".join(faults_in(reader))
    assert counts_of(open_as()).workloads == 1


def test_a_trial_a_run_and_a_missed_key_that_cannot_be_read_are_left_out(
    open_as: Callable[..., PostgresStore], change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_as()
    fill(store)
    store.miss(Miss(BAD, at=1.0))
    store.miss(Miss(GOOD, at=1.0))
    change("UPDATE {s}.runs SET body = '{}', started = 200 WHERE n = 1")
    change("UPDATE {s}.trials SET facts = '[' WHERE n = 2")
    change("UPDATE {s}.missed SET body = '{}' WHERE n = 1")
    store = open_as()
    with caplog.at_level(logging.WARNING, "whet"):
        # What was chosen cannot be read, and the fastest of the rest is used.
        assert chosen(store) == Config(BM=1)
        assert [one.best and one.best.config for one in store.workloads()] == [
            Config(BM=1),
            Config(BM=2),
        ]
        for every in (True, False):
            found = store.trials(GOOD.id, all=every)
            assert [trial.config for trial in found] == [Config(BM=1), Config(BM=3)]
        assert store.runs(GOOD.id) == []
        assert [len(part) for part in store.everything(GOOD.id)] == [2, 2, 0]
        assert [miss.workload for miss in store.missed(tuned=True)] == [GOOD]
    rows = ["run row 1", "trial row 2", "missed row 1"]
    assert [caplog.text.count(f"{row} is not valid") for row in rows] == [1, 1, 1]
    faults = "\n".join(faults_in(open_as()))
    assert [faults.count(f"{row} is not valid") for row in rows] == [1, 1, 1]
    # Others go on writing.
    store.save_run(a_run(GOOD, {"BM": 3}, started=300.0))
    assert chosen(store) == Config(BM=3)


def test_what_is_not_signed_need_not_be_readable(
    open_as: Callable[..., PostgresStore],
    change: Change,
    keys: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(open_as(signing_key=keys["signing_key"]))
    other = open_as()
    other.save_run(a_run(GOOD, {"BM": 3}, id="f" * 32))
    other.append([a_trial(GOOD, {"BM": 3}, 1.0, id="e" * 32)])
    change(f"UPDATE {{s}}.runs SET body = '' WHERE id = '{'f' * 32}'")
    change(f"UPDATE {{s}}.trials SET config = '5' WHERE id = '{'e' * 32}'")
    with caplog.at_level(logging.WARNING, "whet"):
        reader = open_as(trusted_keys=keys["trusted_keys"])
        assert chosen(reader) == Config(BM=2)
        assert len(reader.trials(GOOD.id)) == 3
    for row in ("run row 3", "trial row 7"):
        assert caplog.text.count(f"{row} is not valid") == 1
        assert f"{row} is not valid" in "\n".join(faults_in(reader))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_moments_that_are_none_are_reported_and_stop_nothing(
    open_as: Callable[..., PostgresStore], change: Change, number: str
) -> None:
    store = open_as()
    fill(store)
    store.miss(Miss(GOOD))
    change(f"UPDATE {{s}}.runs SET started = '{number}' WHERE n = 1")
    change(f"UPDATE {{s}}.workloads SET added = '{number}' WHERE n = 1")
    change(f"UPDATE {{s}}.workloads SET active = '{number}' WHERE n = 2")
    change(f"UPDATE {{s}}.missed SET at = '{number}'")
    change(f"UPDATE {{s}}.trials SET created = '{number}' WHERE n = 1")
    change(f"UPDATE {{s}}.trials SET median_ns = '{number}' WHERE n = 3")
    assert all(0 <= one.active < 1e11 for one in store.workloads())
    assert [trial.config for trial in store.trials(GOOD.id)] == [Config(BM=2)]
    assert all(0 < one.last < 1e11 for one in store.contributions())
    faults = "\n".join(faults_in(store))
    for row in ("run row 1", "workload row 1", "workload row 2", "missed row 1"):
        assert f"{row} is not valid" in faults
    for row in ("trial row 1", "trial row 3"):
        assert f"{row} is not valid" in faults

"""The commands on a store that a team shares, as on a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet
from postgres_server import PostgresServer, new_namespace
from whet.store import open_store
from whet.store.postgres import link
from whet.testing.samples import a_run, a_trial, a_workload

pytestmark = pytest.mark.medium

KERNEL = """
import whet

def count(step, n=4096):
    return sum(range(0, n, step)) and None

counting = whet.function(count, {"step": [1, 2, 4]}, key={})
"""


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """With a password, which this server does not ask for and nobody may print."""
    return postgres_server.url(new_namespace(), user="whet:hunter2")


@pytest.fixture
def team(whet: Whet, url: str) -> Whet:
    def run(*words: str) -> Any:
        ran = whet(*words, "--store", url)
        assert "hunter2" not in ran.out + ran.err
        return ran

    return run


def fill(url: str, key: int = 1) -> None:
    workload = a_workload(key={"M": key})
    with open_store(url, direct=True) as store:
        store.save_run(a_run(workload, {"BM": 1}))
        store.append([a_trial(workload, {"BM": 1}), a_trial(workload, {"BM": 1})])


def test_init_says_whether_there_was_a_store(team: Whet) -> None:
    assert "ready (schema version 3)" in team("store", "init").out
    assert "already there (schema version 3)" in team("store", "init").out
    assert "up to date" in team("store", "init", "--upgrade").out


def test_without_a_store_reading_names_the_command_that_makes_one(team: Whet) -> None:
    for command in (["store", "stats"], ["best"], ["store", "init", "--upgrade"]):
        ran = team(*command)
        assert ran.code == 1
        assert "whet store init" in ran.err


def test_results_are_listed_counted_checked_and_swept(team: Whet, url: str) -> None:
    fill(url)
    assert "matmul" in team("store", "stats", "--list").out
    assert "BM=1" in team("best", "matmul").out
    stats = json.loads(team("store", "stats", "--json").out)
    assert (stats["workloads"], stats["trials"], stats["runs"]) == (1, 2, 1)
    [writer] = stats["writers"]
    assert (writer["trials"], writer["writer"]["role"]) == (2, "whet")
    assert "as whet" in team("store", "stats").out
    assert "no faults" in team("store", "stats", "--check").out
    assert "1 trial" in team("store", "gc", "--superseded").out
    assert json.loads(team("store", "stats", "--json").out)["trials"] == 1


def test_check_finds_a_damaged_row(team: Whet, url: str, postgres_server: PostgresServer) -> None:
    fill(url)
    namespace = url.partition("namespace=")[2]
    postgres_server.sql(f"UPDATE {namespace}.trials SET median_ns = 5 WHERE n = 1")
    ran = team("store", "stats", "--check")
    assert ran.code == 1
    assert "trial row 1" in ran.out


def test_a_workload_that_cannot_be_read_stops_nothing_and_can_be_removed(
    team: Whet, url: str, postgres_server: PostgresServer
) -> None:
    namespace = url.partition("namespace=")[2]
    fill(url, key=1)
    with open_store(url, direct=True) as store:
        store.save_run(a_run(a_workload(kernel="softmax"), {"BM": 1}))
    damage = "SET body = left(body, -1) || ',\"origin\":5}'"
    postgres_server.sql(f"UPDATE {namespace}.workloads {damage} WHERE kernel = 'softmax'")
    assert "1 workload" in team("store", "stats", "--list").out
    assert "workload row 2" in team("store", "stats", "--check").out
    assert "removed 1 workload" in team("store", "gc", "--kernel", "softmax").out
    assert "no faults" in team("store", "stats", "--check").out


def test_a_file_and_a_server_are_merged_and_compared(
    whet: Whet, team: Whet, url: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "mine.db")
    fill(file, key=2)
    fill(url, key=1)
    assert "1 workload, 2 trials, 1 run new" in team("store", "merge", file).out
    assert "1 workload, 2 trials, 1 run new" in whet("store", "merge", url, "--store", file).out
    ran = whet("store", "diff", url, file)
    assert "2 same" in ran.out
    assert "hunter2" not in ran.out + ran.err
    assert "cannot merge" in team("store", "merge", url).err


def test_a_kernel_is_tuned_into_it_once(team: Whet, tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    first = team("tune", f"{file}:counting")
    assert first.code == 0, first.err
    assert "postgresql://whet@127.0.0.1" in first.out
    assert "step=" in team("best", "count").out
    again = team("tune", f"{file}:counting")
    assert again.code == 0
    assert json.loads(team("store", "stats", "--json").out)["runs"] == 1


def test_a_role_is_let_in(team: Whet, url: str, postgres_server: PostgresServer) -> None:
    role = new_namespace()
    postgres_server.sql(f"CREATE ROLE {role} LOGIN")
    team("store", "init")
    ran = team("store", "init", "--reader", role)
    assert (ran.code, f"role {role}" in ran.out) == (0, True)


def test_a_file_has_no_roles_promotions_and_keys(whet: Whet) -> None:
    for words, lacks in (
        (("init", "--reader", "ann"), "has no roles"),
        (("promote", "--all"), "has no promotions"),
        (("key", "--revoke", "3f2a9c0b11d4e5f6"), "has no keys"),
    ):
        ran = whet("store", *words, "--store", "mine.db")
        assert (ran.code, lacks in ran.err) == (2, True)


def test_production_uses_what_was_promoted(
    whet: Whet, team: Whet, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(url)
    assert "use --all" in team("store", "promote").err
    assert "(--dry-run)" in team("store", "promote", "matmul", "--dry-run").out
    monkeypatch.setenv("WHET_TRUST", "promoted")
    assert team("best", "matmul").code == 1
    assert "BM=1 promoted" in team("store", "promote", "matmul", "--note", "release 1").out
    assert "as before" in team("store", "promote", "--all").out
    assert "BM=1" in team("best", "matmul").out
    [row] = json.loads(team("store", "promote", "--all", "--withdraw", "--json").out)["workloads"]
    assert (row["kernel"], row["config"], row["changed"]) == ("matmul", None, True)
    assert team("best", "matmul").code == 1
    ran = team("store", "promote", "matmul", "--withdraw")
    assert (ran.code, "not promoted" in ran.out) == (1, True)


def test_what_is_not_signed_is_refused_and_named(
    whet: Whet, team: Whet, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, trusted = tmp_path / "key.pem", tmp_path / "trusted"
    trusted.write_text(whet("store", "key", "--new", str(key), "--name", "tuner1").out)
    fill(url, key=1)
    monkeypatch.setenv("WHET_SIGNING_KEY", str(key))
    fill(url, key=2)
    monkeypatch.setenv("WHET_TRUSTED_KEYS", str(trusted))
    assert "2 workloads" in team("store", "stats").out
    assert "3 trials" not in team("store", "stats").out
    ran = team("store", "stats", "--check")
    assert ran.code == 1
    assert ran.out.count("not signed") == 3
    id = trusted.read_text().split()[0]
    assert f"key {id}" in team("store", "key", "--revoke", id, "--reason", "lost").out
    assert "already revoked" in team("store", "key", "--revoke", id).out
    assert team("store", "stats", "--check").out.count(f"key {id}, which is revoked (lost)") == 3


def test_a_password_is_never_printed(
    whet: Whet, postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    monkeypatch.setenv("WHET_DEBUG", "1")
    there = postgres_server.url(new_namespace(), user="whet:hunter2", more="&sslpassword=hunter3")
    wrong = postgres_server.url("team", user="nobody:hunter2")
    away = there.replace(f":{postgres_server.port}/", ":1/")
    broken = there.replace(f":{postgres_server.port}/", ":port/").replace("hunter2", "hunt/er2")
    fill(there)
    some = [["best"], ["store", "init"], ["store", "promote", "--all"], ["store", "merge", there]]
    every = [
        *some,
        ["tune", f"{file}:counting"],
        ["settings"],
        ["store", "ls", "--json"],
        ["store", "stats"],
        ["store", "check"],
        ["store", "gc", "--older-than", "1d"],
        ["store", "migrate"],
        ["store", "grant", "reader", "nobody"],
        ["store", "revoke", "x"],
        ["pack", str(tmp_path / "packed.whet")],
    ]
    for url, commands in ((there, every), (wrong, some), (away, some), (broken, some)):
        for words in commands:
            ran = whet(*words, "--store", url)
            said = ran.out + ran.err
            assert not any(secret in said for secret in ("hunter", "hunt/er2")), words
    ran = whet("store", "diff", there, away)
    assert "hunter" not in ran.out + ran.err


def test_the_explorer_shows_what_the_server_has(url: str) -> None:
    from whet.explorer.library import StorePlace

    fill(url)
    place = StorePlace(url, None)
    assert [one.workload.kernel for one in place.store.workloads()] == ["matmul"]


def test_a_server_that_is_away_does_not_stop_a_tuning_and_is_mentioned(
    whet: Whet, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    url, file = own_postgres.url("team"), tmp_path / "kernel.py"
    file.write_text(KERNEL)
    whet("store", "init", "--store", url)
    own_postgres.kill()
    ran = whet("tune", f"{file}:counting", "--store", url)
    assert ran.code == 0, ran.err
    assert "still on this host" in ran.out
    own_postgres.start()
    link._outages.clear()  # as in a process of its own
    again = whet("tune", f"{file}:counting", "--store", url)
    assert "still on this host" not in again.out
    assert "step=" in whet("best", "count", "--store", url).out

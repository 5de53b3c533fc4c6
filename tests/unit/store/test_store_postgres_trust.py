"""Who may do what in a shared store, and what of it is relied on, on a real server: rights of the
database, promotions and signatures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postgres_server import USER, PostgresServer, new_namespace
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Run
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Origin, Workload
from whet.store import SqliteStore, open_store
from whet.store.postgres.address import parse_address, with_trust
from whet.store.postgres.local_first import LocalFirstStore, renew_lease, take_lease
from whet.store.postgres.schema import grant
from whet.store.postgres.signing import Promotion, SigningKey, TrustedKeys, canonical_bytes
from whet.store.postgres.store import PostgresStore
from whet.store.postgres.verified import VerifiedStore, promote, withdraw
from whet.store.rows import workload_body
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import refusal

pytestmark = pytest.mark.medium

WORKLOAD = a_workload()
REFUSED = "does not allow this"

# For a contributor, about what another one wrote.
FORBIDDEN = [
    "UPDATE {s}.runs SET body = replace(body, 'finished', 'failed'), outcome = 'failed'",
    "UPDATE {s}.runs SET started = 1e9",
    "DELETE FROM {s}.runs",
    "UPDATE {s}.trials SET median_ns = 1",
    "DELETE FROM {s}.trials",
    "UPDATE {s}.latest SET median_ns = 1",
    "UPDATE {s}.latest SET trial = (SELECT max(trial) FROM {s}.latest)",
    "INSERT INTO {s}.picks SELECT n, 0, '{}', '{}' FROM {s}.workloads",
    "UPDATE {s}.workloads SET body = replace(body, 'matmul', 'other')",
    "UPDATE {s}.workloads SET body = replace(body, ':512,', ':512.0,')",
    "UPDATE {s}.workloads SET body = jsonb_set(body::jsonb, '{origin}', '5')::text",
    "UPDATE {s}.workloads SET body = ' ' || body",
    "UPDATE {s}.workloads SET id = 'other'",
    "UPDATE {s}.timelines SET body = ''",
    "UPDATE {s}.leases SET until = now()",
    "UPDATE {s}.leases SET token = 1000000",
    "UPDATE {s}.leases SET role = 'other'",
    "INSERT INTO {s}.runs (id, workload, started, outcome, taken, body, writer) "
    "SELECT 'x', workload, 1, 'finished', false, body, writer FROM {s}.runs",
    "INSERT INTO {s}.trials (id, workload, config_id, status, created, run_id, config, cost, "
    "facts, error, writer) SELECT 'x', workload, config_id, status, created, run_id, config, "
    "cost, facts, error, writer FROM {s}.trials LIMIT 1",
    "INSERT INTO {s}.writers (role, os_user, host, whet) VALUES ('boss', '', '', '')",
    "UPDATE {s}.writers SET role = 'boss'",
    "INSERT INTO {s}.promotions (workload) SELECT n FROM {s}.workloads",
    "INSERT INTO {s}.revoked_keys (id, reason) VALUES ('x', '')",
    "UPDATE {s}.versions SET version = 99",
    "CREATE TABLE {s}.mine (n int)",
    "DROP TRIGGER keep_runs ON {s}.runs",
    "ALTER TABLE {s}.runs DISABLE TRIGGER ALL",
]
# In place of an origin. No reader could read a workload that has one of these.
NO_ORIGINS = [
    "5",
    "null",
    "{}",
    '{"code":"","captured":{}}',
    '{"code":5,"captured":{},"places":[]}',
    '{"code":"","captured":{"a":1},"places":[]}',
    '{"code":"","captured":{},"places":[1]}',
    '{"code":"","captured":{},"places":{}}',
    '{"code":"","captured":{},"places":[],"more":1}',
    '{"code":"","captured":{},"places":[],"places":5}',
    '{"code":"","captured":{},"places":[]},"origin":5',
    '{"code":"","captured":{},"places":[]},"kernel":5',
]
# For a promoter: a trial of another config, a run that does not exist, another role's name.
UNTRUE = [
    "INSERT INTO {s}.promotions (workload, run, trial) SELECT r.workload, r.id, t.n "
    "FROM {s}.runs r JOIN {s}.trials t ON t.config_id <> r.best_id",
    "INSERT INTO {s}.promotions (workload, run, trial) SELECT workload, 'x', n FROM {s}.trials",
    "INSERT INTO {s}.promotions (workload, role) SELECT n, 'boss' FROM {s}.workloads",
    "UPDATE {s}.promotions SET trial = 1",
    "DELETE FROM {s}.promotions",
]


def opened(url: str, **trust: str | None) -> PostgresStore:
    store = open_store(with_trust(url, trust), direct=True)
    assert isinstance(store, PostgresStore)
    made.append(store)
    return store


made: list[PostgresStore] = []


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    """A server has only so many connections."""
    yield
    while made:
        made.pop().close()


def tuned(store: Any, best: int = 1, started: float = 100.0, workload: Workload = WORKLOAD) -> Run:
    run = a_run(workload, {"BM": best}, started=started)
    store.save_run(run)
    store.append([a_trial(workload, {"BM": n}, run_id=run.id, created=started) for n in (1, 2, 3)])
    return run


def chosen(store: Any) -> Config | None:
    best = store.best(WORKLOAD.id)
    return None if best is None else best.config


class Team:
    """A store and roles of it. `sql` runs a statement as a role, without any client of ours."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self.server, self.url = server, url
        self.namespace = url.partition("namespace=")[2]
        opened(url).close()

    def role(self, level: str) -> str:
        """The URL as a new role of this level has it."""
        name = new_namespace()
        self.server.sql(f"CREATE ROLE {name} LOGIN")
        grant(parse_address(self.url), level, name)
        return self.url.replace(f"{USER}@", f"{name}@")

    def refuses(self, url: str, statement: str) -> bool:
        place = url.partition("?")[0]
        with psycopg.connect(place, autocommit=True) as db:
            try:
                db.execute(statement.replace("{s}", self.namespace))
            except psycopg.errors.InsufficientPrivilege:
                return True
        return False

    def change(self, statement: str) -> None:
        """As somebody with all rights, such as a thief of the superuser's password."""
        self.server.sql(statement.replace("{s}", self.namespace))


@pytest.fixture
def team(postgres_server: PostgresServer, postgres_url: str) -> Team:
    return Team(postgres_server, postgres_url)


class TestContributors:
    def test_another_role_s_run_cannot_be_overwritten(self, team: Team) -> None:
        ann, bob = opened(team.role("contributor")), opened(team.role("contributor"))
        for outcome in (Outcome.RUNNING, Outcome.FINISHED):
            run = a_run(WORKLOAD, {"BM": 1}, outcome=outcome)
            ann.save_run(run)
            forged = a_run(WORKLOAD, {"BM": 2}, id=run.id)
            assert "another role" in refusal(lambda it=forged: bob.save_run(it))
            assert ann.run(run.id) == run

    def test_a_run_that_has_ended_stays_as_it_is(self, team: Team) -> None:
        ann = opened(team.role("contributor"))
        begun = a_run(WORKLOAD, None, outcome=Outcome.RUNNING)
        ended = a_run(WORKLOAD, {"BM": 1}, id=begun.id)
        ann.save_run(begun)
        ann.save_run(ended)
        ann.save_run(ended)  # what is sent twice is no change
        other = a_run(WORKLOAD, {"BM": 2}, id=begun.id)
        assert "has ended" in refusal(lambda: ann.save_run(other))
        assert ann.run(begun.id) == ended

    def test_the_database_refuses_to_change_what_others_wrote(self, team: Team) -> None:
        ann = opened(team.role("contributor"))
        run = tuned(ann)
        ann.save_timeline(run.id, Timeline())
        take_lease(ann, WORKLOAD.id, "{}", 60.0)
        bob = team.role("contributor")
        assert [one for one in FORBIDDEN if not team.refuses(bob, one)] == []

    def test_a_workload_s_origin_is_changed_only_to_one_that_can_be_read(self, team: Team) -> None:
        ann, bob = opened(team.role("contributor")), team.role("contributor")
        tuned(ann)
        for origin in (Origin(), Origin("c0de", FrozenMap({"a": "1"}), ("k.py:f",))):
            ann.put_workload(replace(WORKLOAD, origin=origin))
            body = workload_body(replace(WORKLOAD, origin=Origin()))[:-1]
            texts = [f"""{body},"origin":{one}}}""" for one in NO_ORIGINS]
            put = "UPDATE {s}.workloads SET body = '%s'"
            assert [text for text in texts if not team.refuses(bob, put % text)] == []
            assert ann.workload(WORKLOAD.id).origin == origin  # type: ignore[union-attr]
        opened(bob).put_workload(replace(WORKLOAD, origin=Origin(places=("other.py:f",))))
        found = ann.workload(WORKLOAD.id)
        assert found is not None
        assert found.origin == Origin("c0de", FrozenMap({"a": "1"}), ("other.py:f", "k.py:f"))

    def test_a_lease_is_its_holder_s_until_it_ends(self, team: Team) -> None:
        ann, bob = opened(team.role("contributor")), opened(team.role("contributor"))
        token = take_lease(ann, WORKLOAD.id, "{}", 60.0)
        assert isinstance(token, int)
        assert REFUSED in refusal(lambda: renew_lease(bob, WORKLOAD.id, token, 0.0))
        assert renew_lease(ann, WORKLOAD.id, token, 0.0)
        assert isinstance(take_lease(bob, WORKLOAD.id, "{}", 60.0), int)

    def test_a_lease_is_held_for_a_minute_at_most_unless_it_is_renewed(self, team: Team) -> None:
        bob = team.role("contributor")
        for statement in (
            "INSERT INTO {s}.leases (id, token, process, since, until) "
            "VALUES ('x', nextval('{s}.tokens'), '', now(), 'infinity')",
            "UPDATE {s}.leases SET until = now() + interval '1 hour'",
        ):
            assert not team.refuses(bob, statement)
            ends = f"SELECT until - clock_timestamp() < '61 s' FROM {team.namespace}.leases"
            assert team.server.sql(ends) == [(True,)]

    def test_another_level_takes_the_place_of_the_one_before(self, team: Team) -> None:
        tuned(opened(team.url))
        for level in ("contributor", "promoter"):
            url = team.role(level)
            name = url.partition("//")[2].partition("@")[0]
            grant(parse_address(team.url), "reader", name)
            store = opened(url)
            assert REFUSED in refusal(lambda it=store: it.save_run(a_run(WORKLOAD)))
            assert REFUSED in refusal(lambda it=store: promote(it, [WORKLOAD]))
            assert REFUSED in refusal(lambda it=store: take_lease(it, WORKLOAD.id, "{}", 1.0))
            assert chosen(store) == Config(BM=1)

    def test_the_owner_still_sweeps_and_merges(self, team: Team, tmp_path: Path) -> None:
        tuned(opened(team.role("contributor")))
        owner = opened(team.url)
        assert owner.gc(kernel=WORKLOAD.kernel).runs == 1
        local = SqliteStore(tmp_path / "mine.db")
        tuned(local)
        assert owner.merge(local).runs == 1


class TestPromotion:
    def production(self, team: Team) -> PostgresStore:
        return opened(team.role("reader"), trust="promoted")

    def test_production_reads_what_was_promoted_and_nothing_else(self, team: Team) -> None:
        tuning, release = opened(team.role("contributor")), opened(team.role("promoter"))
        first, production = tuned(tuning, best=1, started=100.0), self.production(team)
        other = a_workload(key={"M": 9})
        tuned(tuning, workload=other)
        assert (chosen(production), production.workloads()) == (None, [])
        [report] = promote(release, [WORKLOAD])
        assert (report.config, report.run_id) == (Config(BM=1), first.id)
        second = tuned(tuning, best=2, started=200.0)
        assert chosen(release) == Config(BM=2)
        assert chosen(production) == Config(BM=1)
        assert [run.id for run in production.runs(WORKLOAD.id)] == [first.id]
        assert {trial.run_id for trial in production.trials(WORKLOAD.id)} == {first.id}
        assert [one.workload for one in production.workloads()] == [WORKLOAD]
        assert production.workload(other.id) is None
        assert production.run(second.id) is None
        assert promote(release, [WORKLOAD])[0].run_id == second.id
        assert chosen(production) == Config(BM=2)
        withdraw(release, [WORKLOAD])
        assert (chosen(production), production.workloads()) == (None, [])

    def test_what_is_added_to_a_promoted_run_later_is_not_read(self, team: Team) -> None:
        tuning = opened(team.role("contributor"))
        run = tuned(tuning)
        promote(opened(team.role("promoter")), [WORKLOAD])
        for url in (team.role("contributor"), team.url):
            opened(url).append([a_trial(WORKLOAD, {"BM": 1}, 1.0, run_id=run.id, created=999.0)])
        production = self.production(team)
        assert len(production.trials(WORKLOAD.id, all=True)) == 3
        assert production.best(WORKLOAD.id) == tuning.trials(WORKLOAD.id, all=True)[0]

    def test_only_a_promoter_promotes_and_it_writes_nothing_else(self, team: Team) -> None:
        tuned(opened(team.role("contributor")))
        for level in ("reader", "contributor"):
            store = opened(team.role(level))
            assert REFUSED in refusal(lambda it=store: promote(it, [WORKLOAD]))
            assert REFUSED in refusal(lambda it=store: it.change("REVOKE_KEY", key="x", reason=""))
        promoter = opened(team.role("promoter"))
        assert REFUSED in refusal(lambda: promoter.save_run(a_run(WORKLOAD)))
        assert REFUSED in refusal(lambda: promoter.append([a_trial(WORKLOAD)]))
        assert promote(promoter, [WORKLOAD])[0].changed
        assert not promote(promoter, [WORKLOAD])[0].changed

    def test_the_database_refuses_promotions_that_are_not_true(self, team: Team) -> None:
        tuned(opened(team.role("contributor")))
        promoter = team.role("promoter")
        promote(opened(promoter), [WORKLOAD])
        assert [one for one in UNTRUE if not team.refuses(promoter, one)] == []

    def test_what_has_no_finished_run_is_named_and_not_promoted(self, team: Team) -> None:
        store = opened(team.url)
        store.put_workload(WORKLOAD)
        store.append([a_trial(WORKLOAD, {"BM": 1})])
        [report] = promote(store, [WORKLOAD])
        assert report.config is None
        assert "tune it" in report.reason

    def test_what_is_promoted_is_not_swept(self, team: Team) -> None:
        store = opened(team.url)
        tuned(store, best=1, started=100.0)
        promote(store, [WORKLOAD])
        store.append([a_trial(WORKLOAD, {"BM": n}, created=300.0) for n in (1, 2)])
        assert store.gc(superseded=True).trials == 1
        assert store.gc(older_than_s=0.0).workloads == 0
        assert chosen(self.production(team)) == Config(BM=1)
        withdraw(store, [WORKLOAD])
        assert store.gc(older_than_s=0.0).workloads == 1

    def test_a_host_forgets_what_was_withdrawn(self, team: Team, tmp_path: Path) -> None:
        def host() -> LocalFirstStore:
            environ = {"XDG_DATA_HOME": str(tmp_path)}
            url = with_trust(team.url, {"trust": "promoted"})
            store = open_store(url, wait_s=20.0, read_only=True, environ=environ)
            assert isinstance(store, LocalFirstStore)
            return store

        server = opened(team.url)
        tuned(server, best=2, started=200.0)
        promote(server, [WORKLOAD])
        with host() as store:
            assert chosen(store) == Config(BM=2)
        tuned(server, best=1, started=300.0)
        promote(server, [WORKLOAD])
        withdraw(server, [WORKLOAD])
        with host() as store:
            assert chosen(store) is None


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    """A private key, and the list of those that are trusted."""
    private, trusted = tmp_path / "key.pem", tmp_path / "trusted"
    trusted.write_text(f"# ours\n\n{SigningKey.create(str(private)).line('tuner1')}\n")
    return str(private), str(trusted)


class TestSignatures:
    @pytest.mark.parametrize("thing", [a_run(WORKLOAD, {"BM": 1}), a_trial(WORKLOAD)])
    def test_any_change_is_noticed(self, thing: Run | Trial, keys: tuple[str, str]) -> None:
        key, trusted = SigningKey.read(keys[0]), TrustedKeys.read(keys[1])
        signature = key.sign(thing)
        assert trusted.why_refused(thing, signature, {}) is None
        data = thing.to_json()
        data["id"] = "another"
        altered = type(thing).from_json(data)
        why = trusted.why_refused(altered, signature, {})
        assert why is not None
        assert "forged" in why

    def test_the_signed_bytes_are_these(self) -> None:
        said = Promotion("w", "r", "t")
        assert canonical_bytes(said) == (
            b'whet 1 promotion\n{"run":"r","trial":"t","workload":"w"}\n'
        )
        trial = a_trial(WORKLOAD, {"b": 2, "a": 1}, created=5.0)
        text = canonical_bytes(trial).decode()
        assert text.startswith("whet 1 trial\n{")
        assert '"config":{"a":1,"b":2}' in text
        assert '"created":5,' in text
        merged = a_run(WORKLOAD, id="x", started=1.0, after=("y",), taken=True)
        assert canonical_bytes(merged) == canonical_bytes(a_run(WORKLOAD, id="x", started=1.0))

    def test_what_a_trusted_key_signed_is_read(self, team: Team, keys: tuple[str, str]) -> None:
        run = tuned(opened(team.role("contributor"), signing_key=keys[0]), best=2)
        reader = opened(team.role("reader"), trusted_keys=keys[1])
        assert isinstance(reader, VerifiedStore)
        assert chosen(reader) == Config(BM=2)
        assert reader.runs(WORKLOAD.id) == [run]
        assert len(reader.trials(WORKLOAD.id)) == 3
        assert reader.refusals(WORKLOAD.id) == []
        [summary] = reader.workloads()
        assert (summary.trials, summary.ok) == (3, 3)

    @pytest.mark.parametrize(
        ("statement", "named"),
        [
            ("UPDATE {s}.runs SET signature = NULL", "run {run} of workload {w}, written by"),
            (
                "UPDATE {s}.runs SET body = replace(body, '\"BM\":2', '\"BM\":1')",
                "forged or was altered",
            ),
            ("UPDATE {s}.trials SET created = 7", "forged or was altered"),
            ("UPDATE {s}.trials SET signature = 'x:!'", "not among the trusted keys"),
            ("UPDATE {s}.runs SET signature = split_part(signature, ':', 1)", "forged"),
            (
                "INSERT INTO {s}.revoked_keys (id, reason) VALUES ('{key}', 'lost')",
                "revoked (lost)",
            ),
        ],
    )
    def test_forged_altered_and_revoked_entries_are_refused_and_named(
        self,
        team: Team,
        keys: tuple[str, str],
        statement: str,
        named: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        run = tuned(opened(team.url, signing_key=keys[0]), best=2)
        team.change(statement.replace("{key}", SigningKey.read(keys[0]).id))
        reader = opened(team.url, trusted_keys=keys[1])
        with caplog.at_level(logging.WARNING, "whet"):
            found = chosen(reader)
        assert found != Config(BM=2) or reader.runs(WORKLOAD.id) == []
        line = named.replace("{run}", run.id).replace("{w}", WORKLOAD.id)
        assert line in caplog.text
        assert line in "\n".join(reader.refusals(WORKLOAD.id))

    def test_an_unsigned_result_does_not_hide_a_signed_one(
        self, team: Team, keys: tuple[str, str]
    ) -> None:
        tuned(opened(team.url, signing_key=keys[0]), best=2, started=100.0)
        tuned(opened(team.role("contributor")), best=3, started=200.0)
        assert chosen(opened(team.url)) == Config(BM=3)
        assert chosen(opened(team.url, trusted_keys=keys[1])) == Config(BM=2)

    def test_a_key_is_revoked_in_the_list(self, team: Team, keys: tuple[str, str]) -> None:
        tuned(opened(team.url, signing_key=keys[0]))
        with Path(keys[1]).open("a") as file:
            file.write(f"revoked {SigningKey.read(keys[0]).id} stolen\n")
        reader = opened(team.url, trusted_keys=keys[1])
        assert chosen(reader) is None
        assert "revoked (stolen)" in reader.refusals(WORKLOAD.id)[0]  # type: ignore[attr-defined]

    def test_a_promotion_has_to_be_signed_as_well(self, team: Team, keys: tuple[str, str]) -> None:
        tuned(opened(team.url, signing_key=keys[0]))
        promote(opened(team.role("promoter")), [WORKLOAD])
        production = opened(team.url, trust="promoted", trusted_keys=keys[1])
        assert chosen(production) is None
        withdraw(opened(team.url), [WORKLOAD])
        promote(opened(team.role("promoter"), signing_key=keys[0]), [WORKLOAD])
        assert chosen(production) == Config(BM=1)
        assert [run.best for run in production.runs(WORKLOAD.id)] == [Config(BM=1)]

    def test_a_host_signs_what_it_sends_and_forgets_what_is_revoked(
        self, team: Team, keys: tuple[str, str], tmp_path: Path
    ) -> None:
        def host(name: str, **trust: str | None) -> LocalFirstStore:
            environ = {"XDG_DATA_HOME": str(tmp_path / name)}
            store = open_store(with_trust(team.url, trust), wait_s=20.0, environ=environ)
            assert isinstance(store, LocalFirstStore)
            return store

        with host("one", signing_key=keys[0]) as one:
            tuned(one, best=2)
        with host("two", trusted_keys=keys[1]) as two:
            assert chosen(two) == Config(BM=2)
        opened(team.url).change("REVOKE_KEY", key=SigningKey.read(keys[0]).id, reason="lost")
        with host("two", trusted_keys=keys[1]) as two:
            assert chosen(two) is None

    def test_a_late_run_is_kept_under_its_signature(self, keys: tuple[str, str]) -> None:
        key, trusted = SigningKey.read(keys[0]), TrustedKeys.read(keys[1])
        finished = a_run(WORKLOAD, {"BM": 1}, id="x")
        late = a_run(WORKLOAD, {"BM": 1}, id="x", outcome=Outcome.INTERRUPTED)
        assert trusted.why_refused(late, key.sign(finished), {}) is None
        assert trusted.why_refused(finished, key.sign(late), {}) is not None

    def test_files_that_are_no_keys_are_named(self, tmp_path: Path) -> None:
        file = tmp_path / "nonsense"
        assert "whet store key --new" in refusal(lambda: SigningKey.read(str(file)), UsageError)
        file.write_text("nonsense")
        assert "not an Ed25519" in refusal(lambda: SigningKey.read(str(file)), UsageError)
        assert "line 1 of" in refusal(lambda: TrustedKeys.read(str(file)), UsageError)
        assert "another path" in refusal(lambda: SigningKey.create(str(file)), UsageError)
        key = SigningKey.create(str(tmp_path / "key"))
        assert (tmp_path / "key").stat().st_mode & 0o077 == 0
        file.write_text("0000000000000000 " + key.line("").split()[1])
        assert "line 1 of" in refusal(lambda: TrustedKeys.read(str(file)), UsageError)

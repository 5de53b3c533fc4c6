"""Two versions of the schema at once: a client of an older one and one of today, on one server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postgres_server import USER, PostgresServer, new_namespace
from whet.core.run import Outcome
from whet.core.workload import Origin
from whet.store import open_store, statements
from whet.store.postgres import schema
from whet.store.postgres.address import parse_address
from whet.store.postgres.local_first import renew_lease, take_lease
from whet.store.postgres.store import PostgresStore
from whet.store.postgres.verified import promote
from whet.store.protocol import LeaseHeld
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import refusal

pytestmark = pytest.mark.medium

WORKLOAD = a_workload()

# What whet wrote with schema version 1, word for word.
_FRESH = """
WITH fresh AS (
  INSERT INTO {s}.trials (id, workload, config_id, status, median_ns, created, run_id,
                          config, cost, facts, "limit", timing, samples, error, writer)
  SELECT g.id, w.n, g.config_id, g.status, nullif(g.median_ns, 'NaN'), g.created, g.run_id,
         g.config, g.cost, g.facts, nullif(g."limit", ''), nullif(g.timing, ''),
         CASE WHEN g.timing <> '' THEN g.samples END, g.error, %(writer)s
  FROM unnest(%(id)b::text[], %(workload_id)b::text[], %(config_id)b::text[], %(status)b::text[],
              %(median_ns)b::float8[], %(created)b::float8[], %(run_id)b::text[],
              %(config)b::text[], %(cost)b::text[], %(facts)b::text[], %(limit)b::text[],
              %(timing)b::text[], %(samples)b::bytea[], %(error)b::bytea[])
       WITH ORDINALITY AS g (id, workload, config_id, status, median_ns, created, run_id,
                             config, cost, facts, "limit", timing, samples, error, place)
  JOIN {s}.workloads w ON w.id = g.workload
  ORDER BY g.place
  ON CONFLICT (workload, id) DO NOTHING
  RETURNING n, id, workload, config_id, status, median_ns
), standing AS (
  INSERT INTO {s}.latest (workload, config_id, first, trial, ok, median_ns)
  SELECT DISTINCT ON (workload, config_id) workload, config_id,
    min(n) OVER (PARTITION BY workload, config_id), n, status = 'ok', median_ns
  FROM fresh ORDER BY workload, config_id, n DESC
  ON CONFLICT (workload, config_id)
"""
_RUN = """
INSERT INTO {s}.runs (id, workload, started, outcome, best_id, taken, body, writer)
VALUES (%(id)s, (SELECT n FROM {s}.workloads WHERE id = %(workload)s), %(started)s, %(outcome)s,
        %(best_id)s, %(taken)s, %(body)s, %(writer)s)
ON CONFLICT (id) DO UPDATE SET workload = excluded.workload, started = excluded.started,
  outcome = excluded.outcome, best_id = excluded.best_id, taken = excluded.taken,
  body = excluded.body
"""
STATEMENTS_1 = {
    "INSERT_TRIALS": f"""{_FRESH} DO UPDATE SET
      trial = excluded.trial, ok = excluded.ok, median_ns = excluded.median_ns
    ) SELECT id FROM fresh""",
    "TAKE_TRIALS": f"{_FRESH} DO NOTHING ) SELECT id FROM fresh",
    "SAVE_RUN": _RUN,
    "TAKE_RUN": f"{_RUN} WHERE runs.outcome = 'running'",
}
CONTRIBUTE_1 = (
    "GRANT INSERT (os_user, host, whet) ON {s}.writers TO {role}",
    "GRANT INSERT ON {s}.trials TO {role}",
    "GRANT INSERT, UPDATE ON {s}.workloads, {s}.latest, {s}.runs, {s}.timelines, {s}.models, "
    "{s}.leases TO {role}",
    "GRANT INSERT, UPDATE, DELETE ON {s}.missed, {s}.marks, {s}.picks TO {role}",
    "GRANT USAGE ON SEQUENCE {s}.tokens TO {role}",
)

# Of what version 3 changes, what version 2 had: a function that let more pass.
KEEP_WORKLOADS_2 = """
CREATE OR REPLACE FUNCTION {s}.keep_workloads() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF (NEW.n, NEW.id, NEW.kernel, NEW.added) IS DISTINCT FROM
     (OLD.n, OLD.id, OLD.kernel, OLD.added)
     OR (NEW.body <> OLD.body
         AND NEW.body::jsonb - 'origin' IS DISTINCT FROM OLD.body::jsonb - 'origin') THEN
    RAISE insufficient_privilege USING MESSAGE = 'workload cannot be changed';
  END IF;
  RETURN NEW;
END $$"""


@contextmanager
def whet_of_version_1() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "SCHEMA_VERSION", 1)
        patch.setitem(schema._MORE, "contributor", CONTRIBUTE_1)
        for name, text in STATEMENTS_1.items():
            patch.setitem(statements._SERVER, name, text.replace("{s}.", "{s}"))
        yield patch


def opened(url: str, **how: Any) -> PostgresStore:
    store = open_store(url, direct=True, **how)
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


def learned(store: PostgresStore) -> PostgresStore:
    """Has it look up its statements now, as those of its own version."""
    for name in STATEMENTS_1:
        getattr(store._sql, name)
    return store


@pytest.fixture
def older(postgres_server: PostgresServer, postgres_url: str) -> PostgresStore:
    """A contributor with whet of version 1, in a store that was made with it."""
    role = new_namespace()
    postgres_server.sql(f"CREATE ROLE {role} LOGIN")
    with whet_of_version_1():
        opened(postgres_url).close()
        schema.grant(parse_address(postgres_url), "contributor", role)
        return learned(opened(postgres_url.replace(f"{USER}@", f"{role}@")))


def test_an_older_client_goes_on_while_the_store_is_migrated(
    postgres_url: str, older: PostgresStore
) -> None:
    begun = a_run(WORKLOAD, None, outcome=Outcome.RUNNING, started=100.0)
    older.save_run(begun)
    older.append([a_trial(WORKLOAD, {"BM": 1})])
    token = take_lease(older, WORKLOAD.id, "{}", 60.0)
    assert isinstance(token, int)

    assert PostgresStore.migrate(postgres_url) == (1, 3)

    assert renew_lease(older, WORKLOAD.id, token, 60.0)
    older.append([a_trial(WORKLOAD, {"BM": 2})])
    ended = a_run(WORKLOAD, {"BM": 2}, id=begun.id, started=100.0)
    older.save_run(ended)
    newer = opened(postgres_url)
    assert newer.pick(WORKLOAD.id) == older.pick(WORKLOAD.id) is not None
    assert newer.runs(WORKLOAD.id) == older.runs(WORKLOAD.id) == [ended]
    assert isinstance(take_lease(newer, WORKLOAD.id, "{}", 60.0), LeaseHeld)
    newer.append([a_trial(WORKLOAD, {"BM": 3})])
    assert len(older.trials(WORKLOAD.id)) == 3
    assert promote(newer, [WORKLOAD])[0].changed


def test_a_client_of_version_2_goes_on_and_can_no_longer_make_a_workload_unreadable(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace, role = postgres_url.partition("namespace=")[2], new_namespace()
    postgres_server.sql(f"CREATE ROLE {role} LOGIN")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "SCHEMA_VERSION", 2)
        opened(postgres_url).close()
        postgres_server.sql(KEEP_WORKLOADS_2.replace("{s}", namespace))
        schema.grant(parse_address(postgres_url), "contributor", role)
        older = opened(postgres_url.replace(f"{USER}@", f"{role}@"))
    older.save_run(a_run(WORKLOAD, {"BM": 1}))
    damage = f"UPDATE {namespace}.workloads SET body = replace(body, ':512,', ':512.0,')"
    place = older.location.partition("?")[0]
    with psycopg.connect(place) as db:
        assert db.execute(damage).rowcount == 1
        db.rollback()

    assert PostgresStore.migrate(postgres_url) == (2, 3)

    with psycopg.connect(place) as db, pytest.raises(psycopg.errors.InsufficientPrivilege):
        db.execute(damage)
    for name in ("a.py:f", "b.py:f"):
        older.put_workload(replace(WORKLOAD, origin=Origin("c0de", places=(name,))))
    assert older.append([a_trial(WORKLOAD, {"BM": 1})]) == 1
    found = opened(postgres_url).workload(WORKLOAD.id)
    assert found is not None
    assert found.origin.places == ("b.py:f", "a.py:f")


def test_an_older_client_can_be_started_after_the_migration(
    postgres_url: str, older: PostgresStore
) -> None:
    PostgresStore.migrate(postgres_url)
    with whet_of_version_1():
        again = learned(opened(older.location))
        again.save_run(a_run(WORKLOAD, {"BM": 1}))
        assert again.append([a_trial(WORKLOAD, {"BM": 1})]) == 1
    assert opened(postgres_url).best(WORKLOAD.id) == older.best(WORKLOAD.id) is not None


def test_an_older_client_cannot_overwrite_what_a_newer_one_protects(
    postgres_url: str, older: PostgresStore
) -> None:
    PostgresStore.migrate(postgres_url)
    run = a_run(WORKLOAD, {"BM": 1})
    opened(postgres_url).save_run(run)
    forged = a_run(WORKLOAD, {"BM": 2}, id=run.id)
    assert "another role" in refusal(lambda: older.save_run(forged))


def test_whoever_could_read_the_older_schema_reads_promotions_after_the_migration(
    postgres_url: str, older: PostgresStore
) -> None:
    older.save_run(a_run(WORKLOAD, {"BM": 1}))
    older.append([a_trial(WORKLOAD, {"BM": 1})])
    PostgresStore.migrate(postgres_url)
    promote(opened(postgres_url), [WORKLOAD])
    production = opened(f"{older.location}&trust=promoted", read_only=True)
    assert production.best(WORKLOAD.id) == older.best(WORKLOAD.id) is not None


def test_a_newer_client_is_told_in_one_line_to_migrate(
    postgres_url: str, older: PostgresStore, tmp_path: Path
) -> None:
    older.save_run(a_run(WORKLOAD, {"BM": 1}))
    older.append([a_trial(WORKLOAD, {"BM": 1})])
    assert opened(postgres_url, read_only=True).best(WORKLOAD.id) is not None
    keys = tmp_path / "keys"
    keys.write_text("")
    for more in ("", "&trust=promoted", f"&trusted_keys={keys}"):
        message = refusal(lambda it=more: opened(postgres_url + it, read_only=bool(it)))
        assert "'whet store init --upgrade" in message
        assert "\n" not in message

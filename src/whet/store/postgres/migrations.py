"""Steps from one schema version to the next, as statements with `{s}` for the namespace.

What a contributor may not change is refused by triggers, and not by taking rights away: so a client
of an older version goes on as before. Their functions run with the owner's rights and ask who
logged in.
"""

from __future__ import annotations

_FUNCTION = """
CREATE OR REPLACE FUNCTION {{s}}.{name}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  {body}
END $$"""

# Whoever has the owner's rights, `gc` and `migrate` among them, is not watched.
_IS_OWNER = """
pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER')
"""
_REFUSE = "RAISE insufficient_privilege USING MESSAGE ="


def _function(name: str, body: str) -> str:
    return _FUNCTION.format(name=name, body=body.strip())


def _before(event: str, table: str, name: str) -> str:
    return (
        f"CREATE TRIGGER {name} BEFORE {event} ON {{s}}.{table} "
        f"FOR EACH ROW EXECUTE FUNCTION {{s}}.{name}()"
    )


def _after(event: str, table: str, name: str) -> str:
    return (
        f"CREATE TRIGGER {name}_{event.lower()} AFTER {event} ON {{s}}.{table} "
        f"REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION {{s}}.{name}()"
    )


_WRITER_IS_SELF = _function(
    "check_writer",
    f"""
  IF (SELECT role FROM {{s}}.writers WHERE n = NEW.writer) IS DISTINCT FROM session_user THEN
    {_REFUSE} format('role %s cannot write in the name of another role', session_user);
  END IF;
  RETURN NEW;
""",
)
_WRITERS_ARE_SELF = _function(
    "check_writers",
    f"""
  IF EXISTS (SELECT 1 FROM (SELECT DISTINCT writer FROM fresh) f
             JOIN {{s}}.writers w ON w.n = f.writer WHERE w.role <> session_user) THEN
    {_REFUSE} format('role %s cannot write in the name of another role', session_user);
  END IF;
  RETURN NULL;
""",
)
# A run that has ended is what it is; it may be sent once more.
_RUN_STAYS = _function(
    "keep_runs",
    f"""
  IF {_IS_OWNER.strip()} THEN RETURN NEW; END IF;
  IF (SELECT role FROM {{s}}.writers WHERE n = OLD.writer) IS DISTINCT FROM session_user THEN
    {_REFUSE} format('run %s belongs to another role than %s', OLD.id, session_user);
  END IF;
  IF OLD.outcome <> 'running' AND OLD.body = NEW.body THEN RETURN NULL; END IF;
  IF OLD.outcome <> 'running' THEN
    {_REFUSE} format('run %s has ended and cannot be changed', OLD.id);
  END IF;
  IF (NEW.n, NEW.id, NEW.workload, NEW.writer) IS DISTINCT FROM
     (OLD.n, OLD.id, OLD.workload, OLD.writer) THEN
    {_REFUSE} format('run %s cannot be moved', OLD.id);
  END IF;
  RETURN NEW;
""",
)
_TIMELINE_STAYS = _function(
    "keep_timelines",
    f"""
  IF {_IS_OWNER.strip()} THEN RETURN NEW; END IF;
  IF (SELECT w.role FROM {{s}}.runs r JOIN {{s}}.writers w ON w.n = r.writer WHERE r.n = NEW.run)
     IS DISTINCT FROM session_user THEN
    {_REFUSE} format('a timeline of another role''s run cannot be written by %s', session_user);
  END IF;
  RETURN NEW;
""",
)
# A body is the same text but for its last entry, the origin, and that is what a reader takes for
# one: else who may add results could make a workload unreadable for everybody.
_WORKLOAD_STAYS = _function(
    "keep_workloads",
    f"""
  IF {_IS_OWNER.strip()} THEN RETURN NEW; END IF;
  IF (NEW.n, NEW.id, NEW.kernel, NEW.added) IS DISTINCT FROM
     (OLD.n, OLD.id, OLD.kernel, OLD.added) THEN
    {_REFUSE} format('workload %s cannot be changed', OLD.id);
  END IF;
  IF NEW.body = OLD.body THEN RETURN NEW; END IF;
  DECLARE
    label text := ',"origin":';
    tail text := coalesce(label || (OLD.body::json -> 'origin'), '') || '}}';
    head text := left(OLD.body, -length(tail));
    origin json := NEW.body::json -> 'origin';
  BEGIN
    IF OLD.body <> head || tail
       OR NEW.body IS DISTINCT FROM head || label || origin || '}}' THEN
      {_REFUSE} format('workload %s cannot be changed', OLD.id);
    END IF;
    IF json_typeof(origin) <> 'object'
       OR (SELECT array_agg(key || ' ' || json_typeof(value) ORDER BY key) FROM json_each(origin))
          IS DISTINCT FROM ARRAY['captured object', 'code string', 'places array']
       OR EXISTS (SELECT FROM json_each(origin -> 'captured') WHERE json_typeof(value) <> 'string')
       OR EXISTS (SELECT FROM json_array_elements(origin -> 'places') AS place
                  WHERE json_typeof(place) <> 'string') THEN
      {_REFUSE} format('the origin of workload %s is not valid', OLD.id);
    END IF;
  END;
  RETURN NEW;
""",
)
# `latest` and `picks` only point to trials: each to one of its own workload and config.
_LATEST_IS_TRUE = _function(
    "check_latest",
    f"""
  IF EXISTS (SELECT 1 FROM fresh f LEFT JOIN {{s}}.trials t ON t.n = f.trial
             WHERE (t.workload, t.config_id, t.status = 'ok', t.median_ns) IS DISTINCT FROM
                   (f.workload, f.config_id, f.ok, f.median_ns)) THEN
    {_REFUSE} 'the latest trial of a config has to be one of its own trials';
  END IF;
  RETURN NULL;
""",
)
_PICK_IS_TRUE = _function(
    "check_picks",
    f"""
  IF NOT EXISTS (SELECT 1 FROM {{s}}.trials t
                 WHERE t.n = NEW.trial AND t.workload = NEW.workload AND t.status = 'ok') THEN
    {_REFUSE} 'a pick has to be a working trial of its workload';
  END IF;
  RETURN NEW;
""",
)
# Tokens come from the sequence, so that nobody takes one that no other can exceed. Holders renew
# theirs every few seconds: one that is held for longer would have others wait for nobody.
_LEASE_IS_KEPT = _function(
    "keep_leases",
    f"""
  IF TG_OP = 'UPDATE' THEN
    IF OLD.role NOT IN (session_user, '') AND OLD.until > clock_timestamp()
       AND NOT {_IS_OWNER.strip()} THEN
      {_REFUSE} format('the lease of %s belongs to another role', OLD.id);
    END IF;
    IF NEW.token < OLD.token OR NEW.id <> OLD.id THEN
      {_REFUSE} format('the token of the lease of %s only grows', OLD.id);
    END IF;
  END IF;
  IF NEW.token > (SELECT last_value FROM {{s}}.tokens) THEN
    {_REFUSE} format('the lease of %s needs a token of the sequence', NEW.id);
  END IF;
  NEW.role := session_user;
  NEW.until := least(NEW.until, clock_timestamp() + interval '1 minute');
  RETURN NEW;
""",
)
# All that was measured until then by whoever made the run, and nothing that comes later.
_PROMOTION_IS_TRUE = _function(
    "check_promotions",
    f"""
  NEW.role := session_user;
  NEW.at := clock_timestamp();
  IF NEW.run IS NULL AND NEW.trial IS NULL THEN RETURN NEW; END IF;
  IF NOT EXISTS (SELECT 1 FROM {{s}}.runs r JOIN {{s}}.trials t ON t.n = NEW.trial
                 WHERE r.id = NEW.run AND r.workload = NEW.workload AND r.outcome = 'finished'
                   AND t.workload = NEW.workload AND t.config_id = r.best_id
                   AND t.status = 'ok') THEN
    {_REFUSE} 'only the choice of a finished run can be promoted';
  END IF;
  NEW.upto := (SELECT max(n) FROM {{s}}.trials WHERE workload = NEW.workload);
  RETURN NEW;
""",
)

_PROMOTIONS = (
    """
    CREATE TABLE {s}.promotions (
      n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      workload    bigint NOT NULL REFERENCES {s}.workloads ON DELETE CASCADE,
      run         text,
      trial       bigint,
      upto        bigint,
      note        text NOT NULL DEFAULT '',
      signature   text,
      role        text NOT NULL DEFAULT session_user,
      at          timestamptz NOT NULL DEFAULT clock_timestamp()
    )""",
    "CREATE INDEX promotions_by_workload ON {s}.promotions (workload, n DESC)",
    # The last one counts; one without a run takes the workload back.
    """
    CREATE VIEW {s}.promoted AS SELECT * FROM (
      SELECT DISTINCT ON (workload) * FROM {s}.promotions ORDER BY workload, n DESC
    ) last WHERE run IS NOT NULL""",
    """
    CREATE VIEW {s}.promoted_workloads AS SELECT w.* FROM {s}.workloads w
    WHERE EXISTS (SELECT 1 FROM {s}.promoted p WHERE p.workload = w.n)""",
    """
    CREATE VIEW {s}.promoted_runs AS SELECT r.* FROM {s}.runs r
    JOIN {s}.promoted p ON p.workload = r.workload AND p.run = r.id""",
    """
    CREATE VIEW {s}.promoted_trials AS SELECT t.* FROM {s}.promoted p
    JOIN {s}.trials t ON t.workload = p.workload AND t.n <= p.upto
    WHERE t.n = p.trial OR (t.run_id = p.run AND (
      SELECT mine.role = theirs.role FROM {s}.runs r
      JOIN {s}.writers mine ON mine.n = r.writer JOIN {s}.writers theirs ON theirs.n = t.writer
      WHERE r.id = p.run))""",
    """
    CREATE VIEW {s}.promoted_latest AS
    SELECT DISTINCT ON (workload, config_id) workload, config_id, n AS first, n AS trial,
      status = 'ok' AS ok, median_ns
    FROM {s}.promoted_trials ORDER BY workload, config_id, n DESC""",
    """
    CREATE VIEW {s}.promoted_picks AS
    SELECT workload, trial, ARRAY[]::bigint[] AS rivals, ARRAY[trial] AS kept FROM {s}.promoted""",
)
_KEYS = (
    "ALTER TABLE {s}.trials ADD COLUMN signature text",
    "ALTER TABLE {s}.runs ADD COLUMN signature text",
    """
    CREATE TABLE {s}.revoked_keys (
      id          text PRIMARY KEY,
      reason      text NOT NULL,
      role        text NOT NULL DEFAULT session_user,
      at          timestamptz NOT NULL DEFAULT clock_timestamp()
    )""",
)
# Who can read one table of a store can read all of it.
_SAME_READERS = """
DO $$ DECLARE reader text; BEGIN
  FOR reader IN SELECT DISTINCT grantee::regrole::text FROM pg_class c, aclexplode(c.relacl)
                WHERE c.oid = '{s}.trials'::regclass AND privilege_type = 'SELECT' AND grantee <> 0
  LOOP
    EXECUTE 'GRANT SELECT ON ALL TABLES IN SCHEMA {s} TO ' || reader;
  END LOOP;
END $$"""

TO_2 = (
    *_KEYS,
    # Nobody knows whose the leases of before are.
    "ALTER TABLE {s}.leases ADD COLUMN role text NOT NULL DEFAULT ''",
    "ALTER TABLE {s}.leases ALTER COLUMN role SET DEFAULT session_user",
    *_PROMOTIONS,
    _WRITER_IS_SELF,
    _WRITERS_ARE_SELF,
    _RUN_STAYS,
    _TIMELINE_STAYS,
    _WORKLOAD_STAYS,
    _LATEST_IS_TRUE,
    _PICK_IS_TRUE,
    _LEASE_IS_KEPT,
    _PROMOTION_IS_TRUE,
    _before("INSERT", "runs", "check_writer"),
    _before("INSERT", "missed", "check_writer"),
    _after("INSERT", "trials", "check_writers"),
    _before("UPDATE", "runs", "keep_runs"),
    _before("INSERT OR UPDATE", "timelines", "keep_timelines"),
    _before("UPDATE", "workloads", "keep_workloads"),
    _after("INSERT", "latest", "check_latest"),
    _after("UPDATE", "latest", "check_latest"),
    _before("INSERT OR UPDATE", "picks", "check_picks"),
    _before("INSERT OR UPDATE", "leases", "keep_leases"),
    _before("INSERT", "promotions", "check_promotions"),
    _SAME_READERS,
)
TO_3 = (_WORKLOAD_STAYS, _LEASE_IS_KEPT)

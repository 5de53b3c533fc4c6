"""Every statement the PostgreSQL store uses once it is open.

`{s}` is the namespace: names are qualified, because behind a pooler no setting of a session lasts.
"""

from __future__ import annotations

import re

TRIAL_COLUMNS = (
    't.n, t.id, t.status, t.created, t.run_id, t.config, t.cost, t.facts, t."limit", '
    "t.timing, t.samples, t.error, t.config_id, t.median_ns"
)
_LATEST_COLUMNS = TRIAL_COLUMNS.replace("t.config_id", "l.config_id")
_OF_WORKLOAD = "(SELECT n FROM {s}.workloads WHERE id = %(workload)s)"

PUT_WRITER = """
INSERT INTO {s}.writers (os_user, host, whet) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
"""
WRITER = """
SELECT n FROM {s}.writers
WHERE role = session_user AND os_user = %s AND host = %s AND whet = %s
"""
WRITTEN_BY = """
SELECT t.id, w.role, w.os_user, w.host, w.whet
FROM {s}.trials t JOIN {s}.writers w ON w.n = t.writer
WHERE t.workload = (SELECT n FROM {s}.workloads WHERE id = %s) ORDER BY t.n
"""

BY_WRITER = """
SELECT w.role, w.os_user, w.host, w.whet, count(*),
  coalesce(max(t.created) FILTER (WHERE t.created BETWEEN 0 AND 1e11), 0)
FROM {s}.trials t JOIN {s}.writers w ON w.n = t.writer GROUP BY w.n ORDER BY count(*) DESC, w.n
"""

PUT_WORKLOAD = """
INSERT INTO {s}.workloads (id, kernel, added, body) VALUES (%s, %s, %s, %s)
ON CONFLICT (id) DO NOTHING
"""
PUT_BODY = "UPDATE {s}.workloads SET body = %s WHERE id = %s"
# In one order, so that two who lock the same workloads never wait for each other.
LOCK_WORKLOADS = "SELECT id, n FROM {s}.workloads WHERE id = ANY(%s) ORDER BY n FOR NO KEY UPDATE"
WORKLOAD = "SELECT n, body, id FROM {s}.workloads WHERE id = %s"
WORKLOADS_WITH_OK = """
SELECT n, body, id FROM {s}.workloads w
WHERE kernel = %s AND EXISTS (SELECT 1 FROM {s}.latest l WHERE l.workload = w.n AND l.ok)
"""
TOUCH = "UPDATE {s}.workloads SET active = greatest(active, %s) WHERE id = %s"
SUMMARIES = """
SELECT n, body, id,
  (SELECT count(*) FROM {s}.trials WHERE workload = w.n),
  (SELECT count(*) FROM {s}.latest WHERE workload = w.n),
  (SELECT count(*) FROM {s}.latest WHERE workload = w.n AND ok),
  CASE WHEN coalesce(active, added) BETWEEN 0 AND 1e11 THEN coalesce(active, added) ELSE 0 END
    AS moment
FROM {s}.workloads w
WHERE %(kernel)s::text IS NULL OR kernel = %(kernel)s
ORDER BY moment DESC, n
"""

# The number of a trial is taken in the order of the batch; `latest` follows in the same statement.
# Arrays are sent as binary, which spares the client most of its time, and hold no NULL, so that
# their types are known.
_FRESH = """
WITH fresh AS (
  INSERT INTO {s}.trials (id, workload, config_id, status, median_ns, created, run_id,
                          config, cost, facts, "limit", timing, samples, error, writer,
                          signature)
  SELECT g.id, w.n, g.config_id, g.status, nullif(g.median_ns, 'NaN'), g.created, g.run_id,
         g.config, g.cost, g.facts, nullif(g."limit", ''), nullif(g.timing, ''),
         CASE WHEN g.timing <> '' THEN g.samples END, g.error, %(writer)s,
         nullif(g.signature, '')
  FROM unnest(%(id)b::text[], %(workload_id)b::text[], %(config_id)b::text[], %(status)b::text[],
              %(median_ns)b::float8[], %(created)b::float8[], %(run_id)b::text[],
              %(config)b::text[], %(cost)b::text[], %(facts)b::text[], %(limit)b::text[],
              %(timing)b::text[], %(samples)b::bytea[], %(error)b::bytea[],
              %(signature)b::text[])
       WITH ORDINALITY AS g (id, workload, config_id, status, median_ns, created, run_id,
                             config, cost, facts, "limit", timing, samples, error, signature,
                             place)
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
INSERT_TRIALS = f"""{_FRESH} DO UPDATE SET
  trial = excluded.trial, ok = excluded.ok, median_ns = excluded.median_ns
) SELECT id FROM fresh"""
# Of configs that are known nothing changes yet: TAKE_LATEST says what does.
TAKE_TRIALS = f"{_FRESH} DO NOTHING ) SELECT id FROM fresh"
# A merged trial that stands for its config elsewhere stands for it here as well, if the config
# is new here or the trial is newer than the one that stands here.
TAKE_LATEST = """
UPDATE {s}.latest l SET trial = t.n, ok = (t.status = 'ok'), median_ns = t.median_ns
FROM {s}.trials t, {s}.trials now
WHERE t.workload = (SELECT n FROM {s}.workloads WHERE id = %(workload)s)
  AND t.id = ANY(%(fresh)s) AND t.id = ANY(%(standing)s)
  AND l.workload = t.workload AND l.config_id = t.config_id AND now.n = l.trial
  AND (now.created < t.created
       OR EXISTS (SELECT 1 FROM {s}.trials f WHERE f.n = l.first AND f.id = ANY(%(fresh)s)))
"""
ALL_TRIALS = f"""
SELECT {TRIAL_COLUMNS} FROM {{s}}.trials t WHERE workload = {_OF_WORKLOAD} ORDER BY t.n
"""
LATEST_TRIALS = f"""
SELECT {_LATEST_COLUMNS} FROM {{s}}.latest l JOIN {{s}}.trials t ON t.n = l.trial
WHERE l.workload = {_OF_WORKLOAD} ORDER BY l.first
"""
LATEST_TRIAL = f"""
SELECT {_LATEST_COLUMNS} FROM {{s}}.latest l JOIN {{s}}.trials t ON t.n = l.trial
WHERE l.workload = {_OF_WORKLOAD} AND l.config_id = %(config)s
"""

PICK = f"""
WITH w AS (SELECT n FROM {{s}}.workloads WHERE id = %(workload)s),
chosen AS (
  SELECT best_id FROM {{s}}.runs
  WHERE workload = (SELECT n FROM w) AND outcome = 'finished' AND best_id IS NOT NULL
  ORDER BY started DESC, n DESC LIMIT 1
)
SELECT {TRIAL_COLUMNS}, (SELECT rivals FROM {{s}}.picks WHERE workload = (SELECT n FROM w))
FROM {{s}}.trials t WHERE t.n = coalesce(
  (SELECT trial FROM {{s}}.picks WHERE workload = (SELECT n FROM w)),
  (SELECT l.trial FROM {{s}}.latest l JOIN {{s}}.trials t ON t.n = l.trial
   WHERE l.workload = (SELECT n FROM w) AND l.config_id = (SELECT best_id FROM chosen) AND l.ok
     AND (l.median_ns IS NOT NULL OR t.timing IS NULL)),
  (SELECT trial FROM {{s}}.latest
   WHERE workload = (SELECT n FROM w) AND ok AND median_ns IS NOT NULL
   ORDER BY median_ns, first LIMIT 1)
)
"""
RIVALS = f"""
SELECT {TRIAL_COLUMNS} FROM unnest(%s::bigint[]) WITH ORDINALITY AS rival (n, place)
JOIN {{s}}.trials t ON t.n = rival.n ORDER BY rival.place
"""
PUT_PICK = f"""
INSERT INTO {{s}}.picks (workload, trial, rivals, kept)
VALUES ({_OF_WORKLOAD}, %(trial)s, %(rivals)s, %(kept)s)
ON CONFLICT (workload) DO UPDATE SET
  trial = excluded.trial, rivals = excluded.rivals, kept = excluded.kept
"""
DELETE_PICK = f"DELETE FROM {{s}}.picks WHERE workload = {_OF_WORKLOAD}"
HAS_PICK = f"SELECT 1 FROM {{s}}.picks WHERE workload = {_OF_WORKLOAD}"
TRIAL_NUMBERS = f"SELECT id, n FROM {{s}}.trials WHERE workload = {_OF_WORKLOAD}"

SAVE_RUN = f"""
INSERT INTO {{s}}.runs (id, workload, started, outcome, best_id, taken, body, writer,
                       signature)
VALUES (%(id)s, {_OF_WORKLOAD}, %(started)s, %(outcome)s, %(best_id)s, %(taken)s, %(body)s,
        %(writer)s, %(signature)s)
ON CONFLICT (id) DO UPDATE SET workload = excluded.workload, started = excluded.started,
  outcome = excluded.outcome, best_id = excluded.best_id, taken = excluded.taken,
  body = excluded.body, signature = excluded.signature
"""
TAKE_RUN = f"{SAVE_RUN} WHERE runs.outcome = 'running'"
_RUN_COLUMNS = """
r.n, r.body, w.n, w.body, w.id FROM {s}.runs r JOIN {s}.workloads w ON w.n = r.workload
"""
RUNS = f"SELECT {_RUN_COLUMNS} WHERE w.id = %s ORDER BY r.started DESC, r.n DESC"
RUN = f"SELECT {_RUN_COLUMNS} WHERE r.id = %s"
RUN_IDS = f"SELECT id FROM {{s}}.runs WHERE workload = {_OF_WORKLOAD}"
RUNNING = "SELECT id FROM {s}.runs WHERE id = ANY(%s) AND outcome = 'running'"
ANY_TAKEN = f"SELECT 1 FROM {{s}}.runs WHERE workload = {_OF_WORKLOAD} AND taken LIMIT 1"

SIGNED_TRIALS = f"""
SELECT t.signature, by.role, {TRIAL_COLUMNS}
FROM {{s}}.trials t JOIN {{s}}.writers by ON by.n = t.writer
WHERE workload = {_OF_WORKLOAD} ORDER BY t.n
"""
SIGNED_RUNS = """
SELECT r.signature, by.role, r.n, r.body, w.n, w.body, w.id
FROM {s}.runs r JOIN {s}.workloads w ON w.n = r.workload JOIN {s}.writers by ON by.n = r.writer
WHERE w.id = %s ORDER BY r.started DESC, r.n DESC
"""
# Of trials such numbers are noticed where they are read.
NOT_FINITE = """
SELECT * FROM (
  SELECT 'run', n, 'started', started AS number FROM {s}.runs
  UNION ALL SELECT 'workload', n, 'added', added FROM {s}.workloads
  UNION ALL SELECT 'workload', n, 'active', active FROM {s}.workloads
  UNION ALL SELECT 'missed', n, 'at', at FROM {s}.missed
) every WHERE number IN ('NaN', 'Infinity', '-Infinity')
"""
REVOKED_KEYS = "SELECT id, reason FROM {s}.revoked_keys"
REVOKE_KEY = """
INSERT INTO {s}.revoked_keys (id, reason) VALUES (%s, %s) ON CONFLICT DO NOTHING
"""

PROMOTION = f"""
SELECT p.signature, p.role, p.run, t.id, p.note, extract(epoch FROM p.at)::float8
FROM {{s}}.promoted p JOIN {{s}}.trials t ON t.n = p.trial WHERE p.workload = {_OF_WORKLOAD}
"""
PROMOTE = """
INSERT INTO {s}.promotions (workload, run, trial, note, signature)
SELECT w.n, %(run)s, t.n, %(note)s, %(signature)s
FROM {s}.workloads w JOIN {s}.trials t ON t.workload = w.n AND t.id = %(trial)s
WHERE w.id = %(workload)s
"""
WITHDRAW = f"""
INSERT INTO {{s}}.promotions (workload, note) VALUES ({_OF_WORKLOAD}, %(note)s)
"""
IS_PROMOTED = f"SELECT 1 FROM {{s}}.promoted WHERE workload = {_OF_WORKLOAD}"

_PUT_TIMELINE = """
INSERT INTO {s}.timelines (run, body) VALUES ((SELECT n FROM {s}.runs WHERE id = %s), %s)
ON CONFLICT (run) DO
"""
SAVE_TIMELINE = f"{_PUT_TIMELINE} UPDATE SET body = excluded.body"
TAKE_TIMELINE = f"{_PUT_TIMELINE} NOTHING"
TIMELINE = "SELECT run, body FROM {s}.timelines WHERE run = (SELECT n FROM {s}.runs WHERE id = %s)"

MISS = """
INSERT INTO {s}.missed (id, kernel, at, body, writer) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (id) DO NOTHING
"""
MISSED = """
SELECT n, body FROM {s}.missed m WHERE (%(kernel)s::text IS NULL OR kernel = %(kernel)s)
AND (%(tuned)s OR NOT EXISTS (
  SELECT 1 FROM {s}.runs r WHERE r.workload = (SELECT n FROM {s}.workloads WHERE id = m.id)
  AND r.outcome = 'finished' AND r.best_id IS NOT NULL))
ORDER BY n
"""
MISSED_BY = """
SELECT m.n, m.body, w.role, w.os_user, w.host, w.whet
FROM {s}.missed m JOIN {s}.writers w ON w.n = m.writer ORDER BY m.n
"""
FORGET_MISSED = "DELETE FROM {s}.missed WHERE id = ANY(%s)"

PUT_MARK = f"""
INSERT INTO {{s}}.marks (run_id, workload, body) VALUES (%(run)s, {_OF_WORKLOAD}, %(body)s)
ON CONFLICT (run_id) DO UPDATE SET workload = excluded.workload, body = excluded.body
"""
DELETE_MARK = "DELETE FROM {s}.marks WHERE run_id = %s"
MARKS = f"SELECT n, body FROM {{s}}.marks WHERE workload = {_OF_WORKLOAD} ORDER BY n"

_UNTIL = "clock_timestamp() + %(seconds)s * interval '1 second'"
TAKE_LEASE = f"""
INSERT INTO {{s}}.leases (id, token, process, since, until)
VALUES (%(id)s, nextval('{{s}}.tokens'), %(process)s, clock_timestamp(), {_UNTIL})
ON CONFLICT (id) DO UPDATE SET token = excluded.token, process = excluded.process,
  since = excluded.since, until = excluded.until
WHERE leases.until <= clock_timestamp()
RETURNING token
"""
LEASE_HOLDER = """
SELECT process, extract(epoch FROM since)::float8 FROM {s}.leases
WHERE id = %s AND until > clock_timestamp()
"""
RENEW_LEASE = f"""
UPDATE {{s}}.leases SET until = {_UNTIL} WHERE id = %(id)s AND token = %(token)s
"""
# Whoever takes the lease next waits for what is saved under this one, and then sees it.
LAST_TOKEN = "SELECT token FROM {s}.leases WHERE id = %s FOR SHARE"
HAS_CHOICE = f"""
SELECT 1 FROM {{s}}.runs WHERE workload = {_OF_WORKLOAD} AND id <> %(run)s
  AND outcome = 'finished' AND best_id IS NOT NULL LIMIT 1
"""

MODEL = "SELECT body FROM {s}.models WHERE name = %s"
PUT_MODEL = """
INSERT INTO {s}.models (name, body) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET body = excluded.body
"""
DELETE_MODEL = "DELETE FROM {s}.models WHERE name = %s"
MODEL_NAMES = "SELECT name FROM {s}.models ORDER BY name"

_IS_SUPERSEDED = """
(NOT EXISTS (SELECT 1 FROM {s}.latest l WHERE l.workload = t.workload
             AND l.config_id = t.config_id AND l.trial = t.n)
 AND NOT EXISTS (SELECT 1 FROM {s}.promoted p WHERE p.workload = t.workload AND p.trial = t.n)
 AND NOT EXISTS (SELECT 1 FROM {s}.picks p WHERE p.workload = t.workload AND t.n = ANY(p.kept)))
"""
_TRIALS_GOING = f"""
(t.workload = ANY(%(going)s)
 OR (%(superseded)s AND t.workload = ANY(%(confined)s) AND {_IS_SUPERSEDED}))
"""
# Beside the bulky columns a trial has some 250 bytes in short columns and indexes. Lengths are
# read without the values.
_TRIAL_BYTES = """
(250 + octet_length(config) + octet_length(cost) + octet_length(facts) + octet_length(error)
 + coalesce(octet_length(timing), 0) + coalesce(octet_length(samples), 0))
"""
COUNT_TRIALS_GOING = f"""
SELECT count(*) FROM {{s}}.trials t WHERE {_TRIALS_GOING}
"""
COUNT_RUNS_GOING = "SELECT count(*) FROM {s}.runs WHERE workload = ANY(%(going)s)"
DELETE_TRIALS = f"DELETE FROM {{s}}.trials t WHERE {_TRIALS_GOING}"
DELETE_WORKLOADS = "DELETE FROM {s}.workloads WHERE n = ANY(%(going)s)"
DELETE_MISSED = """
DELETE FROM {s}.missed WHERE %(whole)s AND (%(kernel)s::text IS NULL OR kernel = %(kernel)s)
  AND (%(cutoff)s::float8 IS NULL OR at < %(cutoff)s)
"""
SWEPT = """
SELECT n, id, kernel, coalesce(active, added),
  EXISTS (SELECT 1 FROM {s}.promoted p WHERE p.workload = w.n)
FROM {s}.workloads w
"""
WEIGH_TRIALS = f"""
SELECT t.workload, sum({_TRIAL_BYTES})::bigint,
  coalesce(sum({_TRIAL_BYTES}) FILTER (WHERE {_IS_SUPERSEDED}), 0)::bigint
FROM {{s}}.trials t GROUP BY t.workload
"""
WEIGH_REST = """
SELECT w.n, 200 + octet_length(w.body)
  + (SELECT 120 * count(*) FROM {s}.latest WHERE workload = w.n)
  + (SELECT coalesce(sum(150 + octet_length(r.body) + coalesce(octet_length(t.body), 0)), 0)
     FROM {s}.runs r LEFT JOIN {s}.timelines t ON t.run = r.n WHERE r.workload = w.n)::bigint
FROM {s}.workloads w
"""
SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
FROM pg_class c WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r'
"""


_PROMOTED = re.compile(r"\{s\}\.(trials|latest|runs|workloads|picks)\b")


class Statements:
    """The statements above for one namespace: `Statements("team").PICK`. With `promoted` they read
    views that show what was promoted, and nothing can be written."""

    def __init__(self, namespace: str, *, promoted: bool = False) -> None:
        self.namespace = namespace
        self.promoted = promoted

    def __getattr__(self, name: str) -> str:
        if not name.isupper() or name not in globals():
            raise AttributeError(name)
        text = str(globals()[name])
        if self.promoted:
            text = _PROMOTED.sub(r"{s}.promoted_\1", text)
        text = text.replace("{s}", self.namespace)
        setattr(self, name, text)
        return text

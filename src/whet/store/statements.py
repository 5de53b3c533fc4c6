"""Every statement that a store on SQL uses once it is open, for SQLite and PostgreSQL alike.

`:name` is a parameter, `IN (:name[])` asks for one that is a list of numbers, and `{s}` is the
namespace on a server: names are qualified, because behind a pooler no setting of a session lasts.
What the two have no common words for is in braces, and a statement that only one of them has in its
own part below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TRIAL_COLUMNS = (
    't.n, t.id, t.status, t.created, t.run_id, t.config, t.cost, t.facts, t."limit", '
    "t.timing, t.samples, t.error, t.config_id, t.median_ns"
)
# By what the list of latest trials says, so that a trial that is another config's is noticed.
_LATEST_COLUMNS = TRIAL_COLUMNS.replace("t.config_id", "l.config_id")
_N = "(SELECT n FROM {s}workloads WHERE id = :workload)"

_SHARED = {
    "PUT_WORKLOAD": """
INSERT INTO {s}workloads (id, kernel, added, body) VALUES (:workload, :kernel, :added, :body)
ON CONFLICT (id) DO NOTHING
""",
    "PUT_BODY": "UPDATE {s}workloads SET body = :body WHERE id = :workload",
    "WORKLOAD": "SELECT n, body, id FROM {s}workloads WHERE id = :workload",
    "WORKLOADS_WITH_OK": """
SELECT n, body, id FROM {s}workloads w
WHERE kernel = :kernel AND EXISTS (SELECT 1 FROM {s}latest l WHERE l.workload = w.n AND l.ok)
""",
    "TOUCH": """
UPDATE {s}workloads SET active = :moment WHERE id = :workload AND coalesce(active <= :moment, true)
""",
    "SUMMARIES": """
SELECT n, body, id,
  (SELECT count(*) FROM {s}trials WHERE workload = w.n),
  (SELECT count(*) FROM {s}latest WHERE workload = w.n),
  (SELECT count(*) FROM {s}latest WHERE workload = w.n AND ok),
  {moment} AS moment
FROM {s}workloads w
WHERE CAST(:kernel AS text) IS NULL OR kernel = :kernel
ORDER BY moment DESC, n
""",
    "ALL_TRIALS": f"""
SELECT {TRIAL_COLUMNS} FROM {{s}}trials t WHERE workload = {_N} ORDER BY t.n
""",
    "LATEST_TRIALS": f"""
SELECT {_LATEST_COLUMNS} FROM {{s}}latest l JOIN {{s}}trials t ON t.n = l.trial
WHERE l.workload = {_N} ORDER BY l.first
""",
    "LATEST_TRIAL": f"""
SELECT {_LATEST_COLUMNS} FROM {{s}}latest l JOIN {{s}}trials t ON t.n = l.trial
WHERE l.workload = {_N} AND l.config_id = :config
""",
    "TRIAL": f"SELECT {TRIAL_COLUMNS} FROM {{s}}trials t WHERE t.n = :n",
    "TRIAL_NUMBERS": f"SELECT id, n FROM {{s}}trials WHERE workload = {_N}",
    "PICK": f"""
WITH w AS (SELECT n FROM {{s}}workloads WHERE id = :workload),
chosen AS (
  SELECT best_id FROM {{s}}runs
  WHERE workload = (SELECT n FROM w) AND outcome = 'finished' AND best_id IS NOT NULL
  ORDER BY started DESC, n DESC LIMIT 1
)
SELECT {TRIAL_COLUMNS}, (SELECT rivals FROM {{s}}picks WHERE workload = (SELECT n FROM w))
FROM {{s}}trials t WHERE t.n = coalesce(
  (SELECT trial FROM {{s}}picks WHERE workload = (SELECT n FROM w)),
  (SELECT l.trial FROM {{s}}latest l JOIN {{s}}trials t ON t.n = l.trial
   WHERE l.workload = (SELECT n FROM w) AND l.config_id = (SELECT best_id FROM chosen) AND l.ok
     AND (l.median_ns IS NOT NULL OR t.timing IS NULL)),
  (SELECT trial FROM {{s}}latest
   WHERE workload = (SELECT n FROM w) AND ok AND median_ns IS NOT NULL
   ORDER BY median_ns, first LIMIT 1)
)
""",
    "PUT_PICK": f"""
INSERT INTO {{s}}picks (workload, trial, rivals, kept) VALUES ({_N}, :trial, :rivals, :kept)
ON CONFLICT (workload) DO UPDATE SET
  trial = excluded.trial, rivals = excluded.rivals, kept = excluded.kept
""",
    "DELETE_PICK": f"DELETE FROM {{s}}picks WHERE workload = {_N}",
    "HAS_PICK": f"SELECT 1 FROM {{s}}picks WHERE workload = {_N}",
    "SAVE_RUN": f"""
INSERT INTO {{s}}runs (id, workload, started, outcome, best_id, body{{run_columns}})
VALUES (:id, {_N}, :started, :outcome, :best_id, :body{{run_values}})
ON CONFLICT (id) DO UPDATE SET workload = excluded.workload, started = excluded.started,
  outcome = excluded.outcome, best_id = excluded.best_id, body = excluded.body{{run_updates}}
""",
    "RUNS": """
SELECT {run} FROM {s}runs r JOIN {s}workloads w ON w.n = r.workload
WHERE w.id = :workload ORDER BY r.started DESC, r.n DESC
""",
    "RUN": """
SELECT {run} FROM {s}runs r JOIN {s}workloads w ON w.n = r.workload WHERE r.id = :id
""",
    "RUN_IDS": f"SELECT id FROM {{s}}runs WHERE workload = {_N}",
    "IS_RUNNING": "SELECT 1 FROM {s}runs WHERE id = :id AND outcome = 'running'",
    "ANY_TAKEN": f"SELECT 1 FROM {{s}}runs WHERE workload = {_N} AND {{taken}} LIMIT 1",
    "SAVE_TIMELINE": """
INSERT INTO {s}timelines (run, body) VALUES ((SELECT n FROM {s}runs WHERE id = :run), :body)
ON CONFLICT (run) DO UPDATE SET body = excluded.body
""",
    "TAKE_TIMELINE": """
INSERT INTO {s}timelines (run, body) VALUES ((SELECT n FROM {s}runs WHERE id = :run), :body)
ON CONFLICT (run) DO NOTHING
""",
    "TIMELINE": """
SELECT run, body FROM {s}timelines WHERE run = (SELECT n FROM {s}runs WHERE id = :run)
""",
    "MISS": """
INSERT INTO {s}missed (id, kernel, at, body{miss_columns})
VALUES (:workload, :kernel, :at, :body{miss_values}) ON CONFLICT (id) DO NOTHING
""",
    "MISSED": """
SELECT n, body FROM {s}missed m WHERE (CAST(:kernel AS text) IS NULL OR kernel = :kernel)
AND (:tuned OR NOT EXISTS (
  SELECT 1 FROM {s}runs r WHERE r.workload = (SELECT n FROM {s}workloads WHERE id = m.id)
  AND r.outcome = 'finished' AND r.best_id IS NOT NULL))
ORDER BY n
""",
    "FORGET_MISSED": "DELETE FROM {s}missed WHERE id = :workload",
    "PUT_MARK": f"""
INSERT INTO {{s}}marks (run_id, workload, body) VALUES (:run, {_N}, :body)
ON CONFLICT (run_id) DO UPDATE SET workload = excluded.workload, body = excluded.body
""",
    "DELETE_MARK": "DELETE FROM {s}marks WHERE run_id = :run",
    "MARKS": f"SELECT n, body FROM {{s}}marks WHERE workload = {_N} ORDER BY n",
    "SWEPT": "SELECT n, id, kernel, coalesce(active, added), {promoted} FROM {s}workloads w",
    "COUNT_TRIALS_GOING": """
SELECT count(*), CAST(coalesce(sum({trial_bytes}), 0) AS bigint) FROM {s}trials t WHERE {going}
""",
    "COUNT_RUNS_GOING": "SELECT count(*) FROM {s}runs WHERE workload IN (:going[])",
    "TIMELINE_BYTES_GOING": """
SELECT CAST(coalesce(sum({length}(body)), 0) AS bigint) FROM {s}timelines
WHERE run IN (SELECT n FROM {s}runs WHERE workload IN (:going[]))
""",
    "DELETE_TRIALS": "DELETE FROM {s}trials AS t WHERE {going}",
    "DELETE_WORKLOADS": "DELETE FROM {s}workloads WHERE n IN (:going[])",
    "DELETE_MISSED": """
DELETE FROM {s}missed WHERE :whole AND (CAST(:kernel AS text) IS NULL OR kernel = :kernel)
  AND (CAST(:cutoff AS {float}) IS NULL OR at < :cutoff)
""",
    "WEIGH_TRIALS": """
SELECT t.workload, CAST(sum({trial_bytes}) AS bigint),
  CAST(sum(CASE WHEN {superseded} THEN {trial_bytes} ELSE 0 END) AS bigint)
FROM {s}trials t GROUP BY t.workload
""",
    "WEIGH_REST": """
SELECT w.n, 100 + {length}(w.body)
  + (SELECT 80 * count(*) FROM {s}latest WHERE workload = w.n)
  + (SELECT CAST(coalesce(sum(100 + {length}(r.body) + coalesce({length}(t.body), 0)), 0) AS bigint)
     FROM {s}runs r LEFT JOIN {s}timelines t ON t.run = r.n WHERE r.workload = w.n)
FROM {s}workloads w
""",
}
_SHARED["TAKE_RUN"] = _SHARED["SAVE_RUN"] + "WHERE runs.outcome = 'running'"

_GOING = """
(t.workload IN (:going[])
 OR (:superseded AND t.workload IN (:confined[]) AND {superseded}))
"""
_NOT_LATEST = """
NOT EXISTS (SELECT 1 FROM {s}latest l WHERE l.workload = t.workload
            AND l.config_id = t.config_id AND l.trial = t.n)
"""
# Beside the bulky columns a trial has so many bytes in short columns and indexes.
_TRIAL_BYTES = """
({short} + {length}(config) + {length}(cost) + {length}(facts) + {length}(error)
 + coalesce({length}(timing), 0) + coalesce({length}(samples), 0))
"""

# Trials numbered above the given one have just been inserted, by this transaction.
_LITE_FRESH = """
INSERT INTO latest (workload, config_id, first, trial, ok, median_ns)
SELECT workload, config_id, n, n, status = 'ok', median_ns FROM trials WHERE n > :before ORDER BY n
ON CONFLICT (workload, config_id)
"""
# A merged trial that stands for its config elsewhere stands for it here as well, if the config
# is new here or the trial is newer than the one that stands here.
_LITE_TAKEN = f"FROM trials WHERE workload = {_N} AND id = :id"
_LITE = {
    "LAST_TRIAL": "SELECT coalesce(max(n), 0) FROM trials",
    "INSERT_TRIAL": """
INSERT INTO trials (id, workload, config_id, status, median_ns, created, run_id,
                    config, cost, facts, "limit", timing, samples, error)
VALUES (?, (SELECT n FROM workloads WHERE id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (workload, id) DO NOTHING
""",
    "SUPERSEDE_LATEST": f"""{_LITE_FRESH} DO UPDATE SET
  trial = excluded.trial, ok = excluded.ok, median_ns = excluded.median_ns
""",
    "FIRST_LATEST": f"{_LITE_FRESH} DO NOTHING",
    "TAKE_LATEST": f"""
UPDATE latest SET (trial, ok, median_ns) = (SELECT n, status = 'ok', median_ns {_LITE_TAKEN})
WHERE (workload, config_id) = (SELECT workload, config_id {_LITE_TAKEN} AND n > :before)
AND (first > :before
     OR (SELECT created FROM trials WHERE n = latest.trial) < (SELECT created {_LITE_TAKEN}))
""",
    "CODE": """
SELECT DISTINCT json_extract(facts, '$.ir') FROM trials
WHERE instr(facts, '"ir"') AND json_valid(facts)
""",
    "ROOT_PAGES": "SELECT count(*) FROM sqlite_master WHERE rootpage > 0",
}
_LITE_WORDS = {
    "run": "r.n, r.body, w.n, w.body",
    "run_columns": "",
    "run_values": "",
    "run_updates": "",
    "miss_columns": "",
    "miss_values": "",
    "taken": "json_extract(body, '$.taken')",
    "moment": "coalesce(active, added)",
    "promoted": "false",
    "length": "length",
    "short": "150",
    "float": "real",
    "superseded": f"""({_NOT_LATEST} AND NOT EXISTS (
  SELECT 1 FROM picks p, json_each(p.kept) k WHERE p.workload = t.workload AND k.value = t.n))""",
}

# The number of a trial is taken in the order of the batch; `latest` follows in the same statement.
# Arrays are sent as binary, which spares the client most of its time, and hold no NULL, so that
# their types are known.
_SERVER_FRESH = """
WITH fresh AS (
  INSERT INTO {s}trials (id, workload, config_id, status, median_ns, created, run_id,
                         config, cost, facts, "limit", timing, samples, error, writer, signature)
  SELECT g.id, w.n, g.config_id, g.status, nullif(g.median_ns, 'NaN'), g.created, g.run_id,
         g.config, g.cost, g.facts, nullif(g."limit", ''), nullif(g.timing, ''),
         CASE WHEN g.timing <> '' THEN g.samples END, g.error, :writer, nullif(g.signature, '')
  FROM unnest(%(id)b::text[], %(workload_id)b::text[], %(config_id)b::text[], %(status)b::text[],
              %(median_ns)b::float8[], %(created)b::float8[], %(run_id)b::text[],
              %(config)b::text[], %(cost)b::text[], %(facts)b::text[], %(limit)b::text[],
              %(timing)b::text[], %(samples)b::bytea[], %(error)b::bytea[],
              %(signature)b::text[])
       WITH ORDINALITY AS g (id, workload, config_id, status, median_ns, created, run_id,
                             config, cost, facts, "limit", timing, samples, error, signature,
                             place)
  JOIN {s}workloads w ON w.id = g.workload
  ORDER BY g.place
  ON CONFLICT (workload, id) DO NOTHING
  RETURNING n, id, workload, config_id, status, median_ns
), standing AS (
  INSERT INTO {s}latest (workload, config_id, first, trial, ok, median_ns)
  SELECT DISTINCT ON (workload, config_id) workload, config_id,
    min(n) OVER (PARTITION BY workload, config_id), n, status = 'ok', median_ns
  FROM fresh ORDER BY workload, config_id, n DESC
  ON CONFLICT (workload, config_id)
"""
_UNTIL = "clock_timestamp() + :seconds * interval '1 second'"
_SERVER = {
    "PUT_WRITER": """
INSERT INTO {s}writers (os_user, host, whet) VALUES (:user, :host, :whet) ON CONFLICT DO NOTHING
""",
    "WRITER": """
SELECT n FROM {s}writers
WHERE role = session_user AND os_user = :user AND host = :host AND whet = :whet
""",
    "WRITTEN_BY": f"""
SELECT t.id, w.role, w.os_user, w.host, w.whet
FROM {{s}}trials t JOIN {{s}}writers w ON w.n = t.writer WHERE t.workload = {_N} ORDER BY t.n
""",
    "BY_WRITER": """
SELECT w.role, w.os_user, w.host, w.whet, count(*),
  coalesce(max(t.created) FILTER (WHERE t.created BETWEEN 0 AND 1e11), 0)
FROM {s}trials t JOIN {s}writers w ON w.n = t.writer GROUP BY w.n ORDER BY count(*) DESC, w.n
""",
    # In one order, so that two who lock the same workloads never wait for each other.
    "LOCK_WORKLOADS": """
SELECT id, n FROM {s}workloads WHERE id = ANY(:workloads) ORDER BY n FOR NO KEY UPDATE
""",
    "INSERT_TRIALS": f"""{_SERVER_FRESH} DO UPDATE SET
  trial = excluded.trial, ok = excluded.ok, median_ns = excluded.median_ns
) SELECT id FROM fresh""",
    # Of configs that are known nothing changes yet: TAKE_LATEST says what does.
    "TAKE_TRIALS": f"{_SERVER_FRESH} DO NOTHING ) SELECT id FROM fresh",
    "TAKE_LATEST": f"""
UPDATE {{s}}latest l SET trial = t.n, ok = (t.status = 'ok'), median_ns = t.median_ns
FROM {{s}}trials t, {{s}}trials now
WHERE t.workload = {_N} AND t.id = ANY(:fresh) AND t.id = ANY(:standing)
  AND l.workload = t.workload AND l.config_id = t.config_id AND now.n = l.trial
  AND (now.created < t.created
       OR EXISTS (SELECT 1 FROM {{s}}trials f WHERE f.n = l.first AND f.id = ANY(:fresh)))
""",
    "SIGNED_TRIALS": f"""
SELECT t.signature, by.role, {TRIAL_COLUMNS}
FROM {{s}}trials t JOIN {{s}}writers by ON by.n = t.writer WHERE workload = {_N} ORDER BY t.n
""",
    "SIGNED_RUNS": """
SELECT r.signature, by.role, {run}
FROM {s}runs r JOIN {s}workloads w ON w.n = r.workload JOIN {s}writers by ON by.n = r.writer
WHERE w.id = :workload ORDER BY r.started DESC, r.n DESC
""",
    # Of trials such numbers are noticed where they are read.
    "NOT_FINITE": """
SELECT * FROM (
  SELECT 'run', n, 'started', started AS number FROM {s}runs
  UNION ALL SELECT 'workload', n, 'added', added FROM {s}workloads
  UNION ALL SELECT 'workload', n, 'active', active FROM {s}workloads
  UNION ALL SELECT 'missed', n, 'at', at FROM {s}missed
) every WHERE number IN ('NaN', 'Infinity', '-Infinity')
""",
    "REVOKED_KEYS": "SELECT id, reason FROM {s}revoked_keys",
    "REVOKE_KEY": """
INSERT INTO {s}revoked_keys (id, reason) VALUES (:key, :reason) ON CONFLICT DO NOTHING
""",
    "PROMOTION": f"""
SELECT p.signature, p.role, p.run, t.id, p.note, extract(epoch FROM p.at)::float8
FROM {{s}}promoted p JOIN {{s}}trials t ON t.n = p.trial WHERE p.workload = {_N}
""",
    "PROMOTE": """
INSERT INTO {s}promotions (workload, run, trial, note, signature)
SELECT w.n, :run, t.n, :note, :signature
FROM {s}workloads w JOIN {s}trials t ON t.workload = w.n AND t.id = :trial
WHERE w.id = :workload
""",
    "WITHDRAW": f"INSERT INTO {{s}}promotions (workload, note) VALUES ({_N}, :note)",
    "MISSED_BY": """
SELECT m.n, m.body, w.role, w.os_user, w.host, w.whet
FROM {s}missed m JOIN {s}writers w ON w.n = m.writer ORDER BY m.n
""",
    "TAKE_LEASE": f"""
INSERT INTO {{s}}leases (id, token, process, since, until)
VALUES (:workload, nextval('{{s}}tokens'), :process, clock_timestamp(), {_UNTIL})
ON CONFLICT (id) DO UPDATE SET token = excluded.token, process = excluded.process,
  since = excluded.since, until = excluded.until
WHERE leases.until <= clock_timestamp()
RETURNING token
""",
    "LEASE_HOLDER": """
SELECT process, extract(epoch FROM since)::float8 FROM {s}leases
WHERE id = :workload AND until > clock_timestamp()
""",
    "RENEW_LEASE": f"""
UPDATE {{s}}leases SET until = {_UNTIL} WHERE id = :workload AND token = :token
""",
    # Whoever takes the lease next waits for what is saved under this one, and then sees it.
    "LAST_TOKEN": "SELECT token FROM {s}leases WHERE id = :workload FOR SHARE",
    "HAS_CHOICE": f"""
SELECT 1 FROM {{s}}runs WHERE workload = {_N} AND id <> :run
  AND outcome = 'finished' AND best_id IS NOT NULL LIMIT 1
""",
    "MODEL": "SELECT body FROM {s}models WHERE name = :name",
    "PUT_MODEL": """
INSERT INTO {s}models (name, body) VALUES (:name, :body)
ON CONFLICT (name) DO UPDATE SET body = excluded.body
""",
    "DELETE_MODEL": "DELETE FROM {s}models WHERE name = :name",
    "MODEL_NAMES": "SELECT name FROM {s}models ORDER BY name",
    "SIZE": """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
FROM pg_class c WHERE c.relnamespace = CAST(:namespace AS text)::regnamespace AND c.relkind = 'r'
""",
}
_SERVER_WORDS = {
    "run": "r.n, r.body, w.n, w.body, w.id",
    "run_columns": ", taken, writer, signature",
    "run_values": ", :taken, :writer, :signature",
    "run_updates": ", taken = excluded.taken, signature = excluded.signature",
    "miss_columns": ", writer",
    "miss_values": ", :writer",
    "taken": "taken",
    # What is no moment of this age is one long past, so that it does not come first for ever.
    "moment": """CASE WHEN coalesce(active, added) BETWEEN 0 AND 1e11
  THEN coalesce(active, added) ELSE 0 END""",
    "promoted": "EXISTS (SELECT 1 FROM {s}promoted p WHERE p.workload = w.n)",
    "length": "octet_length",  # read without the value
    "short": "250",
    "float": "float8",
    "superseded": f"""({_NOT_LATEST} AND NOT EXISTS (
  SELECT 1 FROM {{s}}promoted p WHERE p.workload = t.workload AND p.trial = t.n
) AND NOT EXISTS (
  SELECT 1 FROM {{s}}picks p WHERE p.workload = t.workload AND t.n = ANY(p.kept)))""",
}

_LIST = re.compile(r"IN \((:\w+)\[\]\)")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
# What looks into a store, and so through a view of what was promoted, where there is one.
_LOOKS = (
    *("WORKLOAD", "WORKLOADS_WITH_OK", "SUMMARIES", "ALL_TRIALS", "LATEST_TRIALS", "LATEST_TRIAL"),
    *("TRIAL", "PICK", "RUNS", "RUN", "TIMELINE", "SIGNED_TRIALS", "SIGNED_RUNS"),
)
_PROMOTED = re.compile(r"\{s\}(trials|latest|runs|workloads|picks)\b")


class Statements:
    """The statements above by name: `Statements("team").PICK` for a namespace on a server,
    `LITE.PICK` for SQLite. With `promoted`, looking into the store shows what was promoted."""

    def __init__(self, namespace: str | None, *, promoted: bool = False) -> None:
        self.namespace = namespace
        self.promoted = promoted

    def __getattr__(self, name: str) -> str:
        lite = self.namespace is None
        own: Mapping[str, str] = _LITE if lite else _SERVER
        text = own.get(name) or _SHARED.get(name)
        if text is None:
            raise AttributeError(name)
        more = {"going": _GOING, "trial_bytes": _TRIAL_BYTES}
        words = {**more, **(_LITE_WORDS if lite else _SERVER_WORDS)}
        # Twice: words are made of words.
        for word, meaning in (*words.items(), *words.items()):
            text = text.replace(f"{{{word}}}", meaning)
        if self.promoted and name in _LOOKS:
            text = _PROMOTED.sub(r"{s}promoted_\1", text)
        text = text.replace("{s}", "" if lite else f"{self.namespace}.")
        if lite:
            text = _LIST.sub(r"IN (SELECT value FROM json_each(\1))", text)
        else:
            text = _PARAMETER.sub(r"%(\1)s", _LIST.sub(r"= ANY(\1)", text))
        setattr(self, name, text)
        return text


LITE = Statements(None)

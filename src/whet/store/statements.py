"""Every statement the SQLite store uses once it is open."""

from __future__ import annotations

TRIAL_COLUMNS = (
    't.n, t.id, t.status, t.created, t.run_id, t.config, t.cost, t.facts, t."limit", '
    "t.timing, t.samples, t.error, t.config_id, t.median_ns"
)
# By what the list of latest trials says, so that a trial that is another config's is noticed.
_LATEST_COLUMNS = TRIAL_COLUMNS.replace("t.config_id", "l.config_id")
_OF_WORKLOAD = "(SELECT n FROM workloads WHERE id = ?)"

PUT_WORKLOAD = """
INSERT INTO workloads (id, kernel, added, body) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""
PUT_BODY = "UPDATE workloads SET body = ? WHERE id = ?"
WORKLOAD_N = "SELECT n FROM workloads WHERE id = ?"
WORKLOAD = "SELECT n, body FROM workloads WHERE id = ?"
WORKLOADS_WITH_OK = """
SELECT n, body FROM workloads w
WHERE kernel = ? AND EXISTS (SELECT 1 FROM latest l WHERE l.workload = w.n AND l.ok)
"""
TOUCH = "UPDATE workloads SET active = max(coalesce(active, ?), ?) WHERE id = ?"
SUMMARIES = """
SELECT n, body,
  (SELECT count(*) FROM trials WHERE workload = w.n),
  (SELECT count(*) FROM latest WHERE workload = w.n),
  (SELECT count(*) FROM latest WHERE workload = w.n AND ok),
  coalesce(active, added) AS moment
FROM workloads w
WHERE :kernel IS NULL OR kernel = :kernel
ORDER BY moment DESC, n
"""

LAST_TRIAL = "SELECT coalesce(max(n), 0) FROM trials"
INSERT_TRIAL = f"""
INSERT INTO trials (id, workload, config_id, status, median_ns, created, run_id,
                    config, cost, facts, "limit", timing, samples, error)
VALUES (?, {_OF_WORKLOAD}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (workload, id) DO NOTHING
"""
ALL_TRIALS = f"SELECT {TRIAL_COLUMNS} FROM trials t WHERE workload = {_OF_WORKLOAD} ORDER BY t.n"
LATEST_TRIALS = f"""
SELECT {_LATEST_COLUMNS} FROM latest l JOIN trials t ON t.n = l.trial
WHERE l.workload = {_OF_WORKLOAD} ORDER BY l.first
"""
LATEST_TRIAL = f"""
SELECT {_LATEST_COLUMNS} FROM latest l JOIN trials t ON t.n = l.trial
WHERE l.workload = {_OF_WORKLOAD} AND l.config_id = ?
"""

# Trials numbered above the given one have just been inserted, by this transaction.
_FRESH = """
INSERT INTO latest (workload, config_id, first, trial, ok, median_ns)
SELECT workload, config_id, n, n, status = 'ok', median_ns FROM trials WHERE n > ? ORDER BY n
ON CONFLICT (workload, config_id)
"""
SUPERSEDE_LATEST = f"""{_FRESH} DO UPDATE SET
  trial = excluded.trial, ok = excluded.ok, median_ns = excluded.median_ns
"""
FIRST_LATEST = f"{_FRESH} DO NOTHING"
# A merged trial that stands for its config elsewhere stands for it here as well, if the config
# is new here or the trial is newer than the one that stands here.
_TAKEN = "FROM trials WHERE workload = (SELECT n FROM workloads WHERE id = :workload) AND id = :id"
TAKE_LATEST = f"""
UPDATE latest SET (trial, ok, median_ns) = (SELECT n, status = 'ok', median_ns {_TAKEN})
WHERE (workload, config_id) = (SELECT workload, config_id {_TAKEN} AND n > :before)
AND (first > :before
     OR (SELECT created FROM trials WHERE n = latest.trial) < (SELECT created {_TAKEN}))
"""

_PICK = """
WITH w AS (SELECT n FROM workloads WHERE id = :workload),
chosen AS (
  SELECT best_id FROM runs
  WHERE workload = (SELECT n FROM w) AND outcome = 'finished' AND best_id IS NOT NULL
  ORDER BY started DESC, n DESC LIMIT 1
)
SELECT {columns} FROM trials t WHERE t.n = coalesce(
  {decided}
  (SELECT l.trial FROM latest l JOIN trials t ON t.n = l.trial
   WHERE l.workload = (SELECT n FROM w) AND l.config_id = (SELECT best_id FROM chosen) AND l.ok
     AND (l.median_ns IS NOT NULL OR t.timing IS NULL)),
  (SELECT trial FROM latest
   WHERE workload = (SELECT n FROM w) AND ok AND median_ns IS NOT NULL
   ORDER BY median_ns, first LIMIT 1)
)
"""
_DECIDED = "FROM picks WHERE workload = (SELECT n FROM w)"
PICK = _PICK.format(
    columns=f"{TRIAL_COLUMNS}, (SELECT rivals {_DECIDED})", decided=f"(SELECT trial {_DECIDED}),"
)
# For stores of a version that did not look at where runs came from.
NEWEST_PICK = _PICK.format(columns=f"{TRIAL_COLUMNS}, NULL", decided="")
RIVALS = f"""
SELECT {TRIAL_COLUMNS} FROM json_each(?) rival JOIN trials t ON t.n = rival.value
ORDER BY rival.key
"""
PUT_PICK = f"""
INSERT OR REPLACE INTO picks (workload, trial, rivals, kept) VALUES ({_OF_WORKLOAD}, ?, ?, ?)
"""
DELETE_PICK = f"DELETE FROM picks WHERE workload = {_OF_WORKLOAD}"
HAS_PICK = f"SELECT 1 FROM picks WHERE workload = {_OF_WORKLOAD}"
KEPT = "SELECT kept.value FROM picks, json_each(picks.kept) kept"
TRIAL_NUMBERS = f"SELECT id, n FROM trials WHERE workload = {_OF_WORKLOAD}"

_PUT_RUN = """
INSERT INTO runs (id, workload, started, outcome, best_id, body)
VALUES (:id, (SELECT n FROM workloads WHERE id = :workload), :started, :outcome, :best_id, :body)
ON CONFLICT (id) DO UPDATE SET workload = excluded.workload, started = excluded.started,
  outcome = excluded.outcome, best_id = excluded.best_id, body = excluded.body
"""
SAVE_RUN = _PUT_RUN
TAKE_RUN = f"{_PUT_RUN} WHERE runs.outcome = 'running'"
_RUN_COLUMNS = "r.n, r.body, w.n, w.body FROM runs r JOIN workloads w ON w.n = r.workload"
RUNS = f"SELECT {_RUN_COLUMNS} WHERE w.id = ? ORDER BY r.started DESC, r.n DESC"
RUN = f"SELECT {_RUN_COLUMNS} WHERE r.id = ?"
RUN_IDS = f"SELECT id FROM runs WHERE workload = {_OF_WORKLOAD}"
IS_RUNNING = "SELECT 1 FROM runs WHERE id = ? AND outcome = 'running'"
ANY_TAKEN = f"""
SELECT 1 FROM runs WHERE workload = {_OF_WORKLOAD} AND json_extract(body, '$.taken') LIMIT 1
"""

_PUT_TIMELINE = """
INSERT INTO timelines (run, body) VALUES ((SELECT n FROM runs WHERE id = ?), ?)
ON CONFLICT (run) DO
"""
SAVE_TIMELINE = f"{_PUT_TIMELINE} UPDATE SET body = excluded.body"
TAKE_TIMELINE = f"{_PUT_TIMELINE} NOTHING"
TIMELINE = "SELECT run, body FROM timelines WHERE run = (SELECT n FROM runs WHERE id = ?)"

MISS = """
INSERT INTO missed (id, kernel, at, body) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""
MISSED = """
SELECT n, body FROM missed m WHERE (:kernel IS NULL OR kernel = :kernel)
AND (:tuned OR NOT EXISTS (
  SELECT 1 FROM runs r WHERE r.workload = (SELECT n FROM workloads WHERE id = m.id)
  AND r.outcome = 'finished' AND r.best_id IS NOT NULL))
ORDER BY n
"""
FORGET_MISSED = "DELETE FROM missed WHERE id = ?"

PUT_MARK = f"""
INSERT INTO marks (run_id, workload, body) VALUES (?, {_OF_WORKLOAD}, ?)
ON CONFLICT (run_id) DO UPDATE SET workload = excluded.workload, body = excluded.body
"""
DELETE_MARK = "DELETE FROM marks WHERE run_id = ?"
MARKS = f"SELECT n, body FROM marks WHERE workload = {_OF_WORKLOAD} ORDER BY n"

_GOING = "(SELECT value FROM json_each(:going))"
_IS_SUPERSEDED = """
NOT EXISTS (SELECT 1 FROM latest l WHERE l.workload = t.workload
            AND l.config_id = t.config_id AND l.trial = t.n)
AND t.n NOT IN (SELECT value FROM json_each(:kept))
"""
_TRIALS_GOING = f"""
t.workload IN {_GOING}
OR (:superseded AND t.workload IN (SELECT value FROM json_each(:confined)) AND {_IS_SUPERSEDED})
"""
# Beside the bulky columns a trial has some 150 bytes in short columns and indexes.
_TRIAL_BYTES = """
150 + length(config) + length(cost) + length(facts) + length(error)
+ coalesce(length(timing), 0) + coalesce(length(samples), 0)
"""
COUNT_TRIALS_GOING = f"""
SELECT count(*), coalesce(sum({_TRIAL_BYTES}), 0) FROM trials t WHERE {_TRIALS_GOING}
"""
COUNT_RUNS_GOING = f"SELECT count(*) FROM runs WHERE workload IN {_GOING}"
TIMELINE_BYTES_GOING = f"""
SELECT coalesce(sum(length(body)), 0) FROM timelines
WHERE run IN (SELECT n FROM runs WHERE workload IN {_GOING})
"""
DELETE_TRIALS = f"DELETE FROM trials AS t WHERE {_TRIALS_GOING}"
DELETE_WORKLOADS = f"DELETE FROM workloads WHERE n IN {_GOING}"

CODE = """
SELECT DISTINCT json_extract(facts, '$.ir') FROM trials
WHERE instr(facts, '"ir"') AND json_valid(facts)
"""
SWEPT = "SELECT n, id, kernel, coalesce(active, added) FROM workloads"
WEIGH_TRIALS = f"""
SELECT t.workload, sum({_TRIAL_BYTES}), sum(({_TRIAL_BYTES}) * ({_IS_SUPERSEDED}))
FROM trials t GROUP BY t.workload
"""
WEIGH_WORKLOADS = """
SELECT n, 100 + length(body) + (SELECT 80 * count(*) FROM latest WHERE workload = w.n)
FROM workloads w
"""
WEIGH_RUNS = "SELECT workload, sum(100 + length(body)) FROM runs GROUP BY workload"
WEIGH_TIMELINES = """
SELECT r.workload, sum(length(t.body)) FROM timelines t JOIN runs r ON r.n = t.run
GROUP BY r.workload
"""
ROOT_PAGES = "SELECT count(*) FROM sqlite_master WHERE rootpage > 0"
DELETE_MISSED = """
DELETE FROM missed WHERE :whole AND (:kernel IS NULL OR kernel = :kernel)
  AND (:cutoff IS NULL OR at < :cutoff)
"""

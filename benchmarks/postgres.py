"""A store on PostgreSQL: look-ups beside pgbench, trials taken in, a fleet of clients, outages.

    python benchmarks/postgres.py                             # all but the long parts, two minutes
    python benchmarks/postgres.py --part lookups --trials 5000000 --json
    python benchmarks/postgres.py --part clients --part outages --part takeovers --json

    appends     trials a second in batches of 500, by one connection, with and without signatures
    lookups     `best` by 8 connections, 500 times a second in all, as often as `--runs` says; the
                best run counts. pgbench then does the same with the same query. All but 10,000 of
                the `--trials` are made by the server itself
    clients     `--processes` times `--threads` clients meet `--keys` cold keys at once
    outages     `--outages` of each kind: the server killed, paused, its network cut or silenced
    takeovers   `--kills` holders of a lease are killed, and others wait for it

A server is started in a temporary folder for each part.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from postgres_clients import meet_cold_keys, read_while_written
from postgres_outages import outages, takeovers
from whet.store.postgres.address import parse_address
from whet.store.postgres.signing import SigningKey
from whet.store.postgres.store import PostgresStore
from whet.store.statements import Statements
from whet.testing.samples import a_run, a_trial, a_workload

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import DATABASE, USER, PostgresServer

NAMESPACE = "bench"
CONNECTIONS = 8
RATE = 500
SECONDS = 10.0
BATCH, BATCHES = 500, 40
CONFIGS = 100
SHORT = ("appends", "lookups")

_FILL = """
INSERT INTO bench.trials (id, workload, config_id, status, median_ns, created, run_id, config, cost,
                          facts, "limit", timing, samples, error, writer)
SELECT md5(copy::text || t.id), w.n, t.config_id, t.status, t.median_ns, t.created, t.run_id,
       t.config, t.cost, t.facts, t."limit", t.timing, t.samples, t.error, t.writer
FROM bench.workloads w JOIN bench.trials t ON t.workload = w.n, generate_series(1, {times}) copy
"""


def main() -> None:
    options = _options()
    parts: dict[str, Callable[[PostgresServer], dict[str, float]]] = {
        "appends": taken_in,
        "lookups": lambda server: lookups(server, options.trials, options.runs),
        "clients": lambda server: meet_cold_keys(
            server, options.processes, options.threads, options.keys
        ),
        "written": lambda server: read_while_written(server, 3, SECONDS),
        "outages": lambda server: outages(server, options.outages),
        "takeovers": lambda server: takeovers(server, options.kills),
    }
    report: dict[str, float] = {}
    for name in options.part or SHORT:
        with PostgresServer(fsync="on", shared_buffers="256MB") as server:
            report |= parts[name](server)
    if options.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:32} {value:>14,.3f}" if value % 1 else f"{name:32} {value:>14,.0f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = (*SHORT, "clients", "outages", "takeovers")
    parser.add_argument("--part", action="append", choices=names)
    parser.add_argument("--trials", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--outages", type=int, default=30)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def lookups(server: PostgresServer, trials: int, runs: int) -> dict[str, float]:
    with PostgresStore(parse_address(server.url(NAMESPACE))) as store:
        workloads = [a_workload(key={"M": n}) for n in range(100)]
        for workload in workloads:
            store.save_run(a_run(workload, {"BM": 7}))
            store.append([a_trial(workload, {"BM": n}, 1000.0 + n) for n in range(CONFIGS)])
        [(here,)] = server.sql("SELECT count(*) FROM bench.trials")
        times = max(0, round((trials - here) / here))
        if times:
            # Without triggers, which would look at each row once more.
            server.sql("SET session_replication_role = replica", _FILL.format(times=times))
        server.sql("VACUUM ANALYZE")
        ids = [workload.id for workload in workloads]
        latencies = min((looked_up(store, ids) for _ in range(runs)), key=lambda one: at(one, 0.99))
        [(filled,)] = server.sql("SELECT count(*) FROM bench.trials")
    bench = pgbench(server, ids[0])
    return {
        "trials": float(filled),
        "best_p50_ms": 1e3 * at(latencies, 0.5),
        "best_p99_ms": 1e3 * at(latencies, 0.99),
        "pgbench_p50_ms": at(bench, 0.5),
        "pgbench_p99_ms": at(bench, 0.99),
    }


def taken_in(server: PostgresServer) -> dict[str, float]:
    """Making the trials up is not counted, signing them is."""
    with tempfile.TemporaryDirectory() as folder:
        key = str(Path(folder, "key.pem"))
        SigningKey.create(key)
        report = {}
        for name, more in (("appended_per_s", ""), ("signed_per_s", f"&signing_key={key}")):
            url = server.url(NAMESPACE, more=more)
            with PostgresStore(parse_address(url)) as store:
                report[name] = _appended(store)
    return report


def _appended(store: PostgresStore) -> float:
    workload = a_workload(key={"M": -1})
    store.put_workload(workload)
    rng = random.Random(7)
    batches = [
        [a_trial(workload, {"BM": n}, rng.uniform(1e3, 1e4)) for n in range(BATCH)]
        for _ in range(BATCHES)
    ]
    began = time.perf_counter()
    for batch in batches:
        store.append(batch)
    return BATCH * BATCHES / (time.perf_counter() - began)


def looked_up(store: PostgresStore, ids: list[str]) -> list[float]:
    """Seconds of each look-up, sorted: a look-up that is due waits for no other."""
    found: list[float] = []

    def ask(number: int) -> None:
        rng = random.Random(number)
        pause = CONNECTIONS / RATE
        due = time.perf_counter() + pause * number / CONNECTIONS
        ends = due + SECONDS
        while due < ends:
            time.sleep(max(0.0, due - time.perf_counter()))
            began = time.perf_counter()
            assert store.best(rng.choice(ids)) is not None
            found.append(time.perf_counter() - began)
            due += pause

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(found)


def pgbench(server: PostgresServer, workload_id: str) -> list[float]:
    """Milliseconds of each query, sorted."""
    query = re.sub(r"%\(workload\)s", f"'{workload_id}'", Statements(NAMESPACE).PICK)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "pick.sql")
        script.write_text(" ".join(query.split()) + ";\n")
        subprocess.run(
            [
                str(server.programs / "pgbench"),
                *("-n", "-f", str(script), "-c", str(CONNECTIONS), "-j", "2", "-R", str(RATE)),
                *("-T", str(int(SECONDS)), "-l", "--log-prefix", str(Path(folder, "log"))),
                *("-h", "127.0.0.1", "-p", str(server.port), "-U", USER, DATABASE),
            ],
            check=True,
            capture_output=True,
        )
        lines = [line.split() for log in Path(folder).glob("log*") for line in log.open()]
    # Its third column is the time since the query was due, its last how late it began.
    return sorted((float(line[2]) - float(line[-1])) / 1e3 for line in lines)


def at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    main()

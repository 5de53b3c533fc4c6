"""A fleet's bad day: hosts tune through a server that is killed, paused, cut off, silent, read-only
and full, at random; one host lies, and one hangs with whatever it holds.

    python benchmarks/fleet.py --minutes 30
    python benchmarks/fleet.py --minutes 2 --seed 3 --json

Every host is a process that meets keys as programs do: it opens the store, uses what is known, and
else tunes under a lease. What each config of a key takes is known here, so that every answer can be
judged; every trial that a host was told is kept is looked for on the server at the end.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from whet.core.workload import Workload
from whet.engine.turns import Turn
from whet.store import open_store
from whet.store.postgres.address import parse_address
from whet.store.postgres.schema import grant
from whet.testing.samples import a_run, a_trial, a_workload

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import DATABASE, CutProxy, PostgresServer, other_user

SPACE = "fleet"
KEYS, CONFIGS = 8, 6
ROUND_S = 15.0  # after so many seconds there are new keys
ROOM = "24m"  # of the disk that is filled


def workload_of(key: int, turn: int) -> Workload:
    return a_workload(key={"M": key, "turn": turn})


def times_of(workload: Workload) -> list[float]:
    """What each config takes: the truth."""
    rng = random.Random(workload.id)
    return [1000.0 * rng.uniform(1.0, 3.0) for _ in range(CONFIGS)]


def host(url: str, folder: str, number: int, began: float, end: float, log: Any) -> None:
    rng, counts = random.Random(number), Counter[str]()
    longest = {"known": 0.0, "all": 0.0}
    kept = Path(folder, "kept")
    kept.touch()
    while time.time() < end:
        turn = int((time.time() - began) / ROUND_S)
        workload = workload_of(rng.randrange(KEYS), turn)
        try:
            with open_store(url, environ={"XDG_DATA_HOME": folder}) as store:
                asked = time.perf_counter()
                found = _choice(store, workload)
                longest["all"] = max(longest["all"], time.perf_counter() - asked)
                if found is None:
                    with Turn(store, workload.id) as mine:
                        if mine.wait(30.0) and _choice(store, workload) is None:
                            _tune(store, workload, kept, rng)
                            counts["tuned"] += 1
                    found = _choice(store, workload)
                asked = time.perf_counter()
                store.best(workload.id)
                longest["known"] = max(longest["known"], time.perf_counter() - asked)
        except Exception as error:
            counts[f"failed: {type(error).__name__}: {str(error)[:150]}"] += 1
            continue
        if found is not None:
            times = times_of(workload)
            counts["right" if found == times.index(min(times)) else "WRONG"] += 1
        time.sleep(rng.uniform(0.0, 0.05))
    before = time.process_time()
    time.sleep(4.0)
    log.put({"counts": counts, "idle": (time.process_time() - before) / 4.0, "longest": longest})


def _choice(store: Any, workload: Workload) -> int | None:
    if not any(run.chose for run in store.runs(workload.id)):
        return None
    best = store.best(workload.id)
    return None if best is None else int(best.config["BM"])


def _tune(store: Any, workload: Workload, kept: Path, rng: random.Random) -> None:
    times = times_of(workload)
    run = a_run(workload, {"BM": times.index(min(times))}, started=time.time())
    store.put_workload(workload)
    for n, ns in enumerate(times):
        trial = a_trial(workload, {"BM": n}, ns, run_id=run.id, created=time.time())
        store.append([trial])
        with kept.open("a") as file:
            file.write(trial.id + "\n")
        time.sleep(rng.uniform(0.0, 0.03))
    store.save_run(run)


# What a contributor's rights do not stop, or must.
LIES = (
    "UPDATE {s}.workloads SET body = jsonb_set(body::jsonb, '{{origin}}', '5')::text",
    "UPDATE {s}.trials SET median_ns = 1",
    "DELETE FROM {s}.runs",
    "UPDATE {s}.leases SET until = now() + interval '1 hour'",
    "INSERT INTO {s}.workloads (id, kernel, added, body)"
    " VALUES (md5(random()::text), 'matmul', 0, '{{')",
    "INSERT INTO {s}.runs (id, workload, started, outcome, taken, body) SELECT md5(random()::text),"
    " n, 'NaN', 'finished', false, '{{\"v\": 1' FROM {s}.workloads ORDER BY random() LIMIT 1",
)


def liar(url: str, end: float, log: Any) -> None:
    counts: Counter[str] = Counter()
    dsn = url.partition("?")[0]
    while time.time() < end:
        for lie in LIES:
            try:
                with psycopg.connect(dsn, autocommit=True, connect_timeout=2) as db, _limited(db):
                    done = db.execute(lie.format(s=SPACE)).rowcount
                    counts["lies that changed something" if done else "lies of no effect"] += 1
            except psycopg.errors.InsufficientPrivilege:
                counts["lies refused"] += 1
            except psycopg.Error:
                counts["lies that did not arrive"] += 1
        time.sleep(0.5)
    log.put({"counts": counts, "idle": 0.0, "longest": {"known": 0.0, "all": 0.0}})


@contextmanager
def _limited(db: Any) -> Iterator[None]:
    """A connection that is silent for ever ends nothing by itself."""
    timer = threading.Timer(5.0, _shut, [db])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut(db: Any) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(db.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


class Disk:
    """A small one, for the trials: whoever is root can fill it."""

    def __init__(self, server: PostgresServer) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="whet-disk-"))
        options = f"size={ROOM}"
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "whet", self._folder])
        self.usable = mounted.returncode == 0
        if self.usable:
            inside = self._folder / "space"
            inside.mkdir()
            who = other_user()
            if who:
                os.chown(inside, int(who["user"]), -1)
            server.sql(f"CREATE TABLESPACE small LOCATION '{inside}'")
            server.sql(f"ALTER TABLE {SPACE}.trials SET TABLESPACE small")

    def fill(self) -> None:
        with suppress(OSError), (self._folder / "rest").open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass

    def free(self) -> None:
        (self._folder / "rest").unlink(missing_ok=True)

    def close(self) -> None:
        if self.usable:
            subprocess.run(["umount", "-l", self._folder], check=False)


def bad_luck(
    server: PostgresServer, network: CutProxy, disk: Disk, hangs: int, end: float, seed: int
) -> Counter[str]:
    def read_only(state: str) -> None:
        server.sql(
            "SET default_transaction_read_only = off",
            f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = {state}",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'host%'",
        )

    kinds: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "killed": (server.kill, server.start),
        "paused": (server.pause, server.resume),
        "cut": (network.cut, network.mend),
        "silent": (network.silence, network.mend),
        "read-only": (lambda: read_only("on"), lambda: read_only("off")),
        "hangs": (
            lambda: os.kill(hangs, signal.SIGSTOP),
            lambda: os.kill(hangs, signal.SIGCONT),
        ),
    }
    if disk.usable:
        kinds["full"] = (disk.fill, disk.free)
    rng, counts = random.Random(seed), Counter[str]()
    while time.time() < end:
        name = rng.choice(sorted(kinds))
        begin, mend = kinds[name]
        begin()
        time.sleep(min(rng.expovariate(1 / 3.0), 20.0) if name != "hangs" else 15.0)
        mend()
        counts[name] += 1
        time.sleep(rng.expovariate(1 / 3.0))
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        report = day(server, Path(folder), asked.minutes * 60.0, asked.hosts, asked.seed)
    if asked.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:<40} {value}")
    return int(bool(report["WRONG"] or report["lost"] or report["twice"] or report["unsent"]))


def day(
    server: PostgresServer, folder: Path, seconds: float, hosts: int, seed: int
) -> dict[str, Any]:
    open_store(server.url(SPACE), direct=True).close()
    roles = [f"host{n}" for n in range(hosts + 1)]
    for role in roles:
        server.sql(f"CREATE ROLE {role} LOGIN")
        grant(parse_address(server.url(SPACE)), "contributor", role)
    disk = Disk(server)
    context = multiprocessing.get_context("spawn")
    log = context.Queue()
    began = time.time()
    end = began + seconds
    with CutProxy(server.port) as network:
        urls = [network.url(server.url(SPACE, user=role)) for role in roles]
        for n in range(hosts):
            Path(folder, str(n)).mkdir()
        them = [
            context.Process(target=host, args=(urls[n], str(folder / str(n)), n, began, end, log))
            for n in range(hosts)
        ]
        them.append(context.Process(target=liar, args=(urls[-1], end, log)))
        for one in them:
            one.start()
        luck = bad_luck(server, network, disk, them[hosts - 1].pid or 0, end - 10.0, seed)
        found = [log.get(timeout=300.0) for _ in them]
        for one in them:
            one.join()
        counts = sum((one["counts"] for one in found), Counter[str]())
        unsent = _settled(urls[:hosts], folder)
    kept = [line for n in range(hosts) for line in _lines(folder / str(n) / "kept")]
    there = Counter(str(id) for (id,) in server.sql(f"SELECT id FROM {SPACE}.trials"))
    disk.close()
    return {
        "minutes": round((time.time() - began) / 60.0, 1),
        **{f"fault: {name}": luck[name] for name in sorted(luck)},
        "right": counts.pop("right", 0),
        "WRONG": counts.pop("WRONG", 0),
        "trials": len(kept),
        "lost": sum(there[id] == 0 for id in kept),
        "twice": sum(count > 1 for count in there.values()),
        "unsent": unsent,
        "longest look-up of a known key, ms": round(
            1e3 * max(o["longest"]["known"] for o in found)
        ),
        "longest question, ms": round(1e3 * max(one["longest"]["all"] for one in found)),
        "idle share of a core, at most": round(max(one["idle"] for one in found), 4),
        **dict(counts),
    }


def _settled(urls: list[str], folder: Path) -> int:
    """What still waits on the hosts when all is well again, after a minute at most."""
    left = 0
    for n, url in enumerate(urls):
        with open_store(url, wait_s=20.0, environ={"XDG_DATA_HOME": str(folder / str(n))}) as store:
            end = time.monotonic() + 60.0
            while store.unsent and time.monotonic() < end:  # type: ignore[attr-defined]
                time.sleep(0.1)
            left += store.unsent  # type: ignore[attr-defined]
            left += len(store._outbox.refused)  # type: ignore[attr-defined]
    return left


def _lines(path: Path) -> list[str]:
    return path.read_text().split()


class _Raw(argparse.RawDescriptionHelpFormatter):
    pass


if __name__ == "__main__":
    sys.exit(main())

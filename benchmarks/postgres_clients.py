"""Many clients meet many cold keys at once, through one PostgreSQL server. A part of `postgres.py`.

Each process is a host of its own, with a store that its threads share. Every client wants every
key, in an order of its own, and tunes what nobody has tuned: it writes trials and a run that chose
one of them by lot, so that two tunings of a key would show.

There a key's trials come in one piece, and nobody reads a key while somebody writes to it. So once
more: one host writes to one key, trial by trial, while others start again and again and ask for it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from whet.core.workload import Workload
from whet.engine.turns import Turn
from whet.store import Store, open_store
from whet.testing.samples import a_run, a_trial, a_workload

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import PostgresServer

NAMESPACE = "clients"
# Those who must agree wait for the server, however much it has to do.
STORE_WAIT_S = 600.0
TURN_S = 3600.0
CONFIGS = 4


def meet_cold_keys(
    server: PostgresServer, processes: int, threads: int, keys: int
) -> dict[str, float]:
    url = server.url(NAMESPACE)
    open_store(url, direct=True).close()
    context = multiprocessing.get_context("spawn")
    begin, answers = context.Barrier(processes + 1), context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        hosts = [
            context.Process(
                target=_host, args=(url, f"{folder}/{n}", n, threads, keys, begin, answers)
            )
            for n in range(processes)
        ]
        for host in hosts:
            host.start()
        begin.wait(600.0)
        began = time.perf_counter()
        found = [answers.get(timeout=3600.0) for _ in hosts]
        seconds = time.perf_counter() - began
        for host in hosts:
            host.join()
    choices = {choice for one in found for choice in one["choices"]}
    waits = sorted(wait for one in found for wait in one["waits"])
    runs = server.sql(f"SELECT count(*) FROM {NAMESPACE}.runs WHERE outcome = 'finished'")
    return {
        "clients": float(processes * threads),
        "keys": float(keys),
        "seconds": seconds,
        "tuned": float(sum(one["tuned"] for one in found)),
        "finished_runs": float(runs[0][0]),
        # One where all clients end with the same choice for every key.
        "different_ends": float(len(choices)),
        "failed_clients": float(sum(one["failed"] for one in found)),
        "met_p50_ms": 1e3 * waits[len(waits) // 2],
        "met_p99_ms": 1e3 * waits[int(0.99 * len(waits))],
        "met_longest_ms": 1e3 * waits[-1],
    }


def _host(
    url: str, folder: str, number: int, threads: int, keys: int, begin: Any, answers: Any
) -> None:
    workloads = [a_workload(key={"M": n}) for n in range(keys)]
    waits: list[float] = []
    ends: list[str] = []
    tuned: list[str] = []
    failed: list[str] = []
    with open_store(url, wait_s=STORE_WAIT_S, environ={"XDG_DATA_HOME": folder}) as store:

        def client(place: int) -> None:
            rng = random.Random(1000 * number + place)
            order, chose = rng.sample(workloads, keys), dict[str, str]()
            try:
                for workload in order:
                    began = time.perf_counter()
                    chose[workload.id] = _chosen(store, workload, rng, tuned)
                    waits.append(time.perf_counter() - began)
            except Exception as error:
                failed.append(repr(error))
            text = json.dumps(sorted(chose.items()))
            ends.append(hashlib.sha256(text.encode()).hexdigest())

        clients = [threading.Thread(target=client, args=(place,)) for place in range(threads)]
        begin.wait(600.0)
        for one in clients:
            one.start()
        for one in clients:
            one.join()
    for line in failed[:3]:
        print(line)
    said = {"tuned": len(tuned), "failed": len(failed)}
    answers.put({**said, "choices": sorted(set(ends)), "waits": waits})


def _chosen(store: Store, workload: Workload, rng: random.Random, tuned: list[str]) -> str:
    """Before a run has finished, the best so far is nobody's choice."""
    while True:
        if _is_finished(store, workload):
            best = store.best(workload.id)
            assert best is not None
            return best.config.id
        with Turn(store, workload.id) as turn:
            if turn.wait(TURN_S) and not _is_finished(store, workload):
                _tune(store, workload, rng)
                tuned.append(workload.id)


def _is_finished(store: Store, workload: Workload) -> bool:
    return any(run.chose for run in store.runs(workload.id))


def _tune(store: Store, workload: Workload, rng: random.Random) -> None:
    run = a_run(workload, {"BM": rng.randrange(CONFIGS)}, started=time.time())
    store.put_workload(workload)
    store.append([a_trial(workload, {"BM": n}, run_id=run.id) for n in range(CONFIGS)])
    store.save_run(run)


def read_while_written(server: PostgresServer, readers: int, seconds: float) -> dict[str, float]:
    url, workload = server.url("written"), a_workload()
    with open_store(url, direct=True) as store:
        store.put_workload(workload)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        hosts = [
            context.Process(target=_reader, args=(url, f"{folder}/{n}", seconds, answers))
            for n in range(readers)
        ]
        for host in hosts:
            host.start()
        written, end = 0, time.monotonic() + seconds + 5.0
        with open_store(url, direct=True) as store:
            while time.monotonic() < end:
                store.append([a_trial(workload, {"BM": written % 64}, created=time.time())])
                written += 1
        found = [answers.get(timeout=600.0) for _ in hosts]
        for host in hosts:
            host.join()
    return {
        "readers": float(readers),
        "written": float(written),
        "asked": float(sum(one["asked"] for one in found)),
        "cut_off": float(sum(one["away"] for one in found)),
        "longest_ms": max(one["longest_ms"] for one in found),
        # Of the processor, when all is read and nothing more is asked.
        "idle_share": max(one["idle_share"] for one in found),
    }


def _reader(url: str, folder: str, seconds: float, answers: Any) -> None:
    workload, asked, away, longest = a_workload(), 0, 0, 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        with open_store(url, wait_s=5.0, environ={"XDG_DATA_HOME": f"{folder}/{asked}"}) as store:
            store.trials(workload.id)
            away += store._link.away  # type: ignore[attr-defined]
        asked, longest = asked + 1, max(longest, time.perf_counter() - began)
    before = time.process_time()
    time.sleep(4.0)
    share = (time.process_time() - before) / 4.0
    told = {"asked": asked, "away": away, "longest_ms": 1e3 * longest, "idle_share": share}
    answers.put(told)

"""What answers of a model do to a search, and how far an agent gets that asks what to try.

    python benchmarks/agents.py llm TABLE… [--repeats 10] [--json]
    python benchmarks/agents.py agent [--sizes 16] [--json]

`llm` tunes recorded tables with the strategy `llm`, which asks a server on this machine whose
answers are scripted: good (of the fastest hundredth), useless (of the slowest) and malformed. No
model is involved. `agent` is a script that asks `whet mcp`, by the protocol's official client, what
to try on a size of a GEMM that the store does not have, and measures 25 configs. Exit code 1: a
figure is below what is wanted.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from whet.core.context import TuningContext
from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.core.trial import Trial
from whet.engine.advice import Endpoint
from whet.engine.settings import Settings
from whet.replay import read_table, simulate
from whet.replay.lab import Case, cases_of
from whet.search import make_strategy
from whet.store import open_store

LOOKS = (10, 25, 50, 100)
ANSWERS = ("good", "useless", "malformed")
MOST_LOST = 1.0
EVALUATIONS, WANTED_SHARE = 25, 0.98
SHIPPED = "h200-gemm-576"


@dataclass(frozen=True)
class Figure:
    name: str
    wanted: str
    measured: Any
    good: bool


class Scripted:
    """What the server says next."""

    def __init__(self) -> None:
        self.say: Callable[[], str] = str


@contextmanager
def server() -> Iterator[tuple[str, Scripted]]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps({"choices": [{"message": {"content": script.say()}}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.server_address[1]}/v1", script
    finally:
        listening.shutdown()


def answers(kind: str, case: Case, seed: int) -> Callable[[], str]:
    draw = random.Random(seed)
    medians = case.workload.medians
    order = [int(at) for at in np.argsort(np.where(np.isnan(medians), np.inf, medians))]
    known = [at for at in order if case.table.status(case.workload, at) is not None]
    few = max(10, len(known) // 100)
    chosen = known[:few] if kind == "good" else known[-20 * few :]

    def say() -> str:
        if kind == "malformed":
            return draw.choice(["no idea", '{"configs": [{"config": {"a": ', "[" * 5000, "{}"])
        configs = [dict(case.table.configs[at]) for at in draw.sample(chosen, min(6, len(chosen)))]
        return json.dumps({"configs": [{"config": one, "reason": kind} for one in configs]})

    return say


def tuned(case: Case, search: str, seed: int, context: TuningContext | None) -> list[float]:
    strategy = make_strategy(search, case.space, seed, whole=False, context=context)
    course = simulate(case.table, case.workload, strategy, max(LOOKS), seed=seed)
    optimum = case.workload.optimum
    assert optimum is not None
    return [100 * course.fraction(look, optimum.ns) for look in LOOKS]


def llm(tables: list[str], repeats: int) -> tuple[list[Figure], dict[str, Any]]:
    cases = [cases_of(Path(table).name, read_table(table))[0] for table in tables]
    found: dict[str, dict[str, list[float]]] = {}
    with server() as (url, script):
        endpoint = Endpoint.of(Settings(llm_url=url, llm_model="scripted"))
        context = TuningContext(advise=lambda prompt: endpoint.ask(prompt, 60.0))
        for case in cases:
            line: dict[str, list[float]] = {}
            for kind in ("auto", *ANSWERS):
                runs = []
                for seed in range(repeats):
                    if kind == "auto":
                        runs.append(tuned(case, "auto", seed, None))
                    else:
                        script.say = answers(kind, case, seed)
                        runs.append(tuned(case, "llm", seed, context))
                line[kind] = [mean(column) for column in zip(*runs, strict=True)]
            found[case.name] = line
            print(case.name, json.dumps(line), file=sys.stderr, flush=True)
    gains = {
        kind: [
            mean(line[kind][at] - line["auto"][at] for line in found.values())
            for at in range(len(LOOKS))
        ]
        for kind in ANSWERS
    }
    worst = {
        kind: min(line[kind][at] - line["auto"][at] for line in found.values() for at in range(4))
        for kind in ANSWERS
    }
    figures = [
        *(
            Figure(
                f"{kind} answers: points against auto at {LOOKS}",
                f"≥ -{MOST_LOST}",
                gain,
                min(gain) >= -MOST_LOST,
            )
            for kind, gain in gains.items()
        ),
        Figure("good answers: points gained at 25", "> 0", gains["good"][1], gains["good"][1] > 0),
    ]
    return figures, {"tables": found, "mean": gains, "worst table and look": worst}


def agent(sizes: int) -> tuple[list[Figure], dict[str, Any]]:
    every = cases_of(SHIPPED, read_table(SHIPPED))
    held_out = np.linspace(0, len(every) - 1, sizes).round().astype(int).tolist()
    reached = {}
    for at in held_out:
        case = every[at]
        with tempfile.TemporaryDirectory() as folder:
            place = str(Path(folder, "s.db"))
            _store(place, [one for one in every if one is not case])
            reached[str(dict(case.workload.key))] = _asks(place, case)
        print(case.workload.key, reached[str(dict(case.workload.key))], file=sys.stderr, flush=True)
    least = min(reached.values())
    name = f"agent: least share of the best after {EVALUATIONS}, {sizes} sizes"
    return [Figure(name, f"≥ {WANTED_SHARE}", least, least >= WANTED_SHARE)], {"reached": reached}


def _store(place: str, kept: list[Case]) -> None:
    with open_store(place) as store:
        for case in kept:
            workload = case.table.described(case.workload)
            run = Run(workload, case.space.id, case.space.count, "table", 0, outcome=Outcome.FAILED)
            store.save_run(run)
            store.append(
                Trial(workload.id, one.config, one.status, one.timing, run_id=run.id)
                for one in case.trials
            )


def _asks(place: str, case: Case) -> float:
    import anyio
    from mcp import Client

    from whet.explorer.library import Library, StorePlace
    from whet.mcp.allowance import Allowance
    from whet.mcp.server import make_server

    workload = case.table.described(case.workload)
    space = [dict(config) for config in case.space]
    outcomes = {trial.config.json: trial for trial in case.trials}
    by_id = {trial.config.id: trial for trial in outcomes.values()}

    async def talk() -> float:
        results: list[dict[str, Any]] = []
        async with Client(make_server(Library(StorePlace(place)), Allowance())) as client:
            while len(results) < EVALUATIONS:
                wanted = {
                    "space": space,
                    "kernel": workload.kernel,
                    "key": dict(workload.key),
                    "results": results,
                    "count": min(5, EVALUATIONS - len(results)),
                }
                told = await client.call_tool("suggest", wanted)
                for one in json.loads(told.content[0].text)["configs"]:  # type: ignore[union-attr]
                    trial = by_id[one["id"]]
                    works = trial.status is Status.OK
                    outcome = {"ns": trial.median_ns} if works else {"status": str(trial.status)}
                    results.append({"config": one["config"], **outcome})
        optimum = case.workload.optimum
        assert optimum is not None
        return max(optimum.ns / float(one["ns"]) for one in results if "ns" in one)

    return anyio.run(talk)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=("llm", "agent"))
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--sizes", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.part == "llm" and not given.tables:
        parser.error("llm needs tables")
    figures, details = (
        llm(given.tables, given.repeats) if given.part == "llm" else agent(given.sizes)
    )
    if given.json:
        print(json.dumps({"figures": [vars(one) for one in figures], **details}, indent=2))
    else:
        for one in figures:
            mark = "ok " if one.good else "BAD"
            print(f"{mark} {one.name}: {one.measured} (wanted {one.wanted})")
    return 0 if all(one.good for one in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())

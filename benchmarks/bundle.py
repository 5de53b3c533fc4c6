"""What a bundle costs: to pack, to open in a new process, and to ask.

    python benchmarks/bundle.py                      # 10,000 keys, eight trials each
    python benchmarks/bundle.py --keys 1000 --json

A new process opens the bundle and asks for one exact result; what it spends after importing whet is
counted, the median of several processes, beside the same question to an SQLite store. `entries` is
how many of the bundle's entries that process unpacked.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.core.workload import Device, Workload
from whet.store import SqliteStore
from whet.store.bundles.bundle import open_bundle
from whet.store.bundles.writing import write_bundle

DEVICE = Device("NVIDIA H200", "nvidia", "sm_90", "570.86.15")
ROUNDS = 9
CALLS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(child(*options.child, keys=options.keys)))
        return
    with tempfile.TemporaryDirectory() as folder:
        report = measure(Path(folder), options.keys, options.trials)
    if options.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:32} {value:>14,.3f}" if value % 1 else f"{name:32} {value:>14,.0f}")


def measure(folder: Path, keys: int, trials: int) -> dict[str, float]:
    report = {"keys": float(keys), "trials": float(keys * trials)}
    with SqliteStore(folder / "store.db") as store:
        fill(store, keys, trials)
        for name, best_only in (("all", False), ("best_only", True)):
            path = folder / f"{name}.whet"
            before = time.perf_counter()
            write_bundle(path, store, best_only=best_only)
            report[f"{name}_pack_s"] = time.perf_counter() - before
            report[f"{name}_bytes"] = float(path.stat().st_size)
    for kind, name in (
        ("bundle", "all.whet"),
        ("bundle", "best_only.whet"),
        ("sqlite", "store.db"),
    ):
        answers = [asked(kind, folder / name, keys) for _ in range(ROUNDS)]
        label = name.partition(".")[0]
        for part in answers[0]:
            report[f"{label}_{part}"] = statistics.median(answer[part] for answer in answers)
    return report


def fill(store: SqliteStore, keys: int, trials: int) -> None:
    rng = random.Random(7)
    for n in range(keys):
        workload = _workload(n)
        batch = [_trial(workload, m, rng) for m in range(trials)]
        best = min(batch, key=lambda trial: trial.median_ns or 0.0).config
        store.save_run(
            Run(workload, "0", trials, "auto", 0, outcome=Outcome.FINISHED, best=best, started=1e9)
        )
        store.append(batch)


def asked(kind: str, path: Path, keys: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--keys", str(keys), "--child", kind, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def child(kind: str, path: str, *, keys: int) -> dict[str, float]:
    rng = random.Random(time.time_ns())
    wanted = _workload(rng.randrange(keys))
    before = time.perf_counter()
    store: Any = open_bundle(path).store if kind == "bundle" else SqliteStore(path, read_only=True)
    opened = time.perf_counter()
    best = store.best(wanted.id)
    answered = time.perf_counter()
    assert best is not None
    report = {"open_ms": 1e3 * (opened - before), "first_answer_ms": 1e3 * (answered - opened)}
    if kind == "bundle":
        report["entries"] = float(len(store._entries))
    report["again_us"] = 1e6 * _seconds(lambda: store.best(wanted.id)) / CALLS
    asked_for = _workload(keys + 1)
    before = time.perf_counter()
    store.match(asked_for)
    report["loose_match_ms"] = 1e3 * (time.perf_counter() - before)
    return report


def _seconds(call: Callable[[], object]) -> float:
    before = time.perf_counter()
    for _ in range(CALLS):
        call()
    return time.perf_counter() - before


def _workload(n: int) -> Workload:
    key = {"M": 1 + n, "N": 128 * (1 + n % 32), "K": 4096, "dtype": "f16"}
    return Workload("matmul", "0" * 16, DEVICE, FrozenMap(key), FrozenMap({"triton": "3.6.0"}))


def _trial(workload: Workload, n: int, rng: random.Random) -> Trial:
    level = rng.lognormvariate(11, 0.5)
    return Trial(
        workload_id=workload.id,
        config=Config(BLOCK_M=16 << n % 4, BLOCK_N=16 << n // 4, num_warps=4, num_stages=3),
        status=Status.OK,
        timing=Timing(
            tuple(level * (1 + 0.02 * rng.random()) for _ in range(12)), "cuda", l2="cold"
        ),
        facts=FrozenMap({"registers": 128, "spills": 0, "shared": 98304}),
        created=1.7e9 + n,
    )


if __name__ == "__main__":
    main()

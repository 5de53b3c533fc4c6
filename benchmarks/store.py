"""How fast the store takes trials in, and how long `best` takes when it is full.

    python benchmarks/store.py                       # a million trials, two minutes, 1 GB
    python benchmarks/store.py --trials 50000 --json

The time to make up the trials is not counted. `best` is asked through a connection that has seen
nothing yet, first with the store at rest, then while another process appends without pause.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.core.workload import Device, Workload
from whet.store import SqliteStore

BATCH = 500
WORKLOADS = 400
CALLS = 2000
DEVICE = Device("NVIDIA H100 80GB HBM3", "nvidia", "sm_90", "550.54.15")
VALUES = (16, 32, 64, 128, 256)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--path", type=Path, help="an existing folder; default: a temporary one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.path) as folder:
        report = measure(Path(folder) / "store.db", options.trials)
    if options.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:32} {value:>14,.3f}" if value % 1 else f"{name:32} {value:>14,.0f}")


def measure(path: Path, trials: int) -> dict[str, float]:
    rng = random.Random(7)
    workloads = [_workload(n) for n in range(WORKLOADS)]
    seconds = fill(path, workloads, trials, rng)
    per_batch = sorted(seconds)
    report = {
        "trials": float(trials),
        "workloads": float(len(workloads)),
        "file_bytes": float(path.stat().st_size),
        "appended_per_s": trials / sum(seconds),
        "append_batch_p50_ms": 1e3 * per_batch[len(seconds) // 2],
        "append_batch_p99_ms": 1e3 * per_batch[int(len(seconds) * 0.99)],
    }
    report |= _percentiles("best", ask(path, workloads, rng))
    stop = multiprocessing.get_context("spawn").Event()
    writer = multiprocessing.get_context("spawn").Process(target=keep_appending, args=(path, stop))
    writer.start()
    _wait_for_growth(path)
    try:
        report |= _percentiles("best_while_writing", ask(path, workloads, rng))
    finally:
        stop.set()
        writer.join()
    return report


def fill(path: Path, workloads: list[Workload], trials: int, rng: random.Random) -> list[float]:
    """Seconds spent in each batch. One batch is one workload's, as when it is being tuned."""
    seconds = []
    with SqliteStore(path) as store:
        for workload in workloads:
            store.put_workload(workload)
        for start in range(0, trials, BATCH):
            workload = workloads[start // BATCH % len(workloads)]
            batch = list(_trials(workload, min(BATCH, trials - start), rng))
            before = time.perf_counter()
            store.append(batch)
            seconds.append(time.perf_counter() - before)
            if sys.stderr.isatty():
                print(f"\r{start + len(batch):,} trials", end="", file=sys.stderr)
    return seconds


def ask(path: Path, workloads: list[Workload], rng: random.Random) -> list[float]:
    """Milliseconds of each call."""
    times = []
    with SqliteStore(path, read_only=True) as store:
        for _ in range(CALLS):
            workload_id = rng.choice(workloads).id
            before = time.perf_counter()
            store.best(workload_id)
            times.append(1e3 * (time.perf_counter() - before))
    return sorted(times)


def keep_appending(path: Path, stop: Event) -> None:
    rng = random.Random(11)
    with SqliteStore(path) as store:
        while not stop.is_set():
            store.append(_trials(_workload(rng.randrange(WORKLOADS)), BATCH, rng))


def _wait_for_growth(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    while not log.exists() or log.stat().st_size == 0:
        time.sleep(0.01)


def _percentiles(name: str, ordered: list[float]) -> dict[str, float]:
    return {
        f"{name}_p50_ms": ordered[len(ordered) // 2],
        f"{name}_p99_ms": ordered[int(len(ordered) * 0.99)],
        f"{name}_max_ms": ordered[-1],
    }


def _workload(n: int) -> Workload:
    key = {"M": 1 << (n % 14), "N": 128 * (1 + n % 32), "K": 64 * (1 + n // 14), "dtype": "f16"}
    return Workload(f"kernel_{n % 8}", f"{n % 8:016x}", DEVICE, FrozenMap(key))


def _trials(workload: Workload, count: int, rng: random.Random) -> Iterator[Trial]:
    for n in range(count):
        config = Config(
            BLOCK_M=rng.choice(VALUES),
            BLOCK_N=rng.choice(VALUES),
            BLOCK_K=rng.choice(VALUES),
            GROUP=rng.randrange(1, 17),
            num_warps=rng.choice((1, 2, 4, 8)),
            num_stages=rng.randrange(1, 8),
        )
        failed = rng.random() < 0.15
        level = rng.lognormvariate(11, 0.5)
        samples = tuple(level * (1 + 0.02 * rng.random()) for _ in range(rng.randrange(2, 40)))
        yield Trial(
            workload_id=workload.id,
            config=config,
            status=Status.RESOURCES if failed else Status.OK if n % 3 else Status.OUTRACED,
            timing=None if failed else Timing(samples, "cuda", loops=4, l2="cold"),
            cost=Cost(
                FrozenMap(
                    {
                        "build": rng.random(),
                        "build.ttir": rng.random(),
                        "build.llir": rng.random(),
                        "load": rng.random(),
                        "measure": rng.random(),
                    }
                )
            ),
            facts=FrozenMap({"registers": 128, "spills": 0, "shared": 98304, "sha": f"{n:032x}"}),
            error="out of resource: shared memory, needed 262144, has 232448" if failed else "",
            run_id=f"{n % 20:032x}",
            created=1.7e9 + n,
        )


if __name__ == "__main__":
    main()

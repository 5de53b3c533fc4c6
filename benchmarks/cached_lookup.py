"""What mode `cached` adds where everything is stored: a look-up, a cold open, a first call.

    python benchmarks/cached_lookup.py [--keys 10000] [--rounds 7] [--json]

The store has so many keys of one kernel. A look-up is `whet.choose` with the store open, at keys
in random order. A cold open is a fresh process that opens the store and looks one key up; what
loading the modules for it takes is told apart. A first call is that of a Triton kernel with a
hundred configs in a fresh process: all but Triton's own launch, which is told apart. Without a GPU
Triton compiles for a driver that launches nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from whet.core.config import Config, Value
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Run
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Method, Timing
from whet.core.trial import Trial
from whet.core.workload import Device, Workload

DEVICE = Device("NVIDIA H200", "nvidia", "sm_90", "13.0")
SPACE = Space({"BM": [32, 64, 128, 256], "num_warps": [4, 8]})
METHOD = Method("cuda", "cold")


class Asked:
    """As much of a target as a look-up takes."""

    name, space, method, shares_host, build_mode = "matmul", SPACE, METHOD, False, "fork"

    def __init__(self, n: int) -> None:
        self._workload = Workload(
            kernel="matmul",
            fingerprint="3f786850e387550fdab836ed7e6dc881",
            device=DEVICE,
            key=FrozenMap({"M": n, "N": 4096, "K": 4096, "a.dtype": "torch.float16"}),
            toolchain=FrozenMap({"triton": "3.6.0"}),
        )
        self._workload.id  # noqa: B018 - a kernel that is called has computed it for its lock

    def workload(self) -> Workload:
        return self._workload


def fill(path: Path, keys: int) -> None:
    from whet.store import SqliteStore

    configs, rng = list(SPACE), random.Random(7)
    with SqliteStore(path) as store:
        for n in range(1, keys + 1):
            workload = Asked(n).workload()
            best = rng.choice(configs)
            run = Run(
                workload, SPACE.id, len(configs), "grid", 0, outcome=Outcome.FINISHED, best=best
            )
            store.save_run(run)
            store.append(_trial(run, config, rng) for config in configs)


def _trial(run: Run, config: Config, rng: random.Random) -> Trial:
    status = Status.OK if config == run.best else Status.OUTRACED
    samples = tuple(rng.gauss(90_000.0, 300.0) for _ in range(12))
    timing = Timing(samples, METHOD.timer, l2=METHOD.l2)
    facts: FrozenMap[Value] = FrozenMap({"registers": 128, "spills": 0, "shared_bytes": 65_536})
    return Trial(run.workload.id, config, status, timing, facts=facts, run_id=run.id, created=1.0)


def look_ups(path: Path, keys: int, calls: int = 3000) -> dict[str, float]:
    """Microseconds."""
    from whet.engine.fallback.untuned import choose
    from whet.store import open_store

    asked = [Asked(n) for n in random.Random(11).choices(range(1, keys + 1), k=calls)]
    times = []
    with open_store(path, read_only=True) as store:
        for target in asked:
            start = time.perf_counter()
            choice = choose(target, store=store, mode="cached")  # type: ignore[arg-type]
            times.append(1e6 * (time.perf_counter() - start))
            assert choice.source == "exact"
    times.sort()
    return {"median": times[calls // 2], "p99": times[calls * 99 // 100]}


def cold_open(path: str) -> dict[str, float]:
    """In a process that has done nothing else yet; milliseconds."""
    start = time.perf_counter()
    from whet.engine.fallback.untuned import choose
    from whet.store import SqliteStore, open_store

    target = Asked(77)
    loaded = time.perf_counter()
    with open_store(path, read_only=True) as store:
        choice = choose(target, store=store, mode="cached")  # type: ignore[arg-type]
        done = time.perf_counter()
    assert choice.source == "exact"
    assert isinstance(store, SqliteStore)
    assert "sklearn" not in sys.modules
    return {"load_ms": 1000 * (loaded - start), "open_ms": 1000 * (done - loaded)}


def first_call() -> dict[str, Any]:
    """In a process that has its tensors and its decorated kernel; milliseconds."""
    import cached_kernel

    with ExitStack() as stack:
        cached_kernel.wake(stack)
        arguments, tuned = cached_kernel.arguments(), cached_kernel.tuned
        launch, launching = tuned.fn.run, 0.0

        def timed(*args: Any, **keywords: Any) -> Any:
            nonlocal launching
            start = time.perf_counter()
            launched = launch(*args, **keywords)
            launching += time.perf_counter() - start
            return launched

        if os.environ["WHET_MODE"] == "cached":
            tuned.fn.run = timed
        start = time.perf_counter()
        tuned[(1,)](*arguments)
        spent = time.perf_counter() - start
    assert "sklearn" not in sys.modules
    return {"launch_ms": 1000 * launching, "added_ms": 1000 * (spent - launching)}


def child(arguments: Iterable[str], environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def first_calls(folder: Path, rounds: int) -> dict[str, float]:
    base = {
        **os.environ,
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "WHET_STORE": str(folder / "kernel.db"),
        "WHET_MODE": "tune",
        "TRITON_DEFAULT_FP_FUSION": "1",
    }
    child(["--call"], base)
    base["WHET_MODE"] = "cached"
    told = [child(["--call"], base) for _ in range(rounds)]
    return {name: statistics.median(one[name] for one in told) for name in told[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--call", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--open", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.call or options.open:
        print(json.dumps(first_call() if options.call else cold_open(options.open)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        fill(path, options.keys)
        opens = [child(["--open", str(path)], dict(os.environ)) for _ in range(options.rounds)]
        report: dict[str, Any] = {
            "keys": options.keys,
            "look_up_us": look_ups(path, options.keys),
            "cold_open_ms": statistics.median(one["open_ms"] for one in opens),
            "cold_load_ms": statistics.median(one["load_ms"] for one in opens),
            "first_call_ms": first_calls(Path(folder), options.rounds),
        }
    if options.json:
        print(json.dumps(report))
        return
    looked, called = report["look_up_us"], report["first_call_ms"]
    print(
        f"a look-up among {options.keys:,} keys {looked['median']:8.1f} µs "
        f"(p99 {looked['p99']:.1f})"
    )
    print(f"open and look up, cold process   {report['cold_open_ms']:8.1f} ms")
    print(f"loading what that takes          {report['cold_load_ms']:8.1f} ms")
    print(f"first call, cached, whet's part   {called['added_ms']:8.1f} ms")
    print(f"first call, Triton's launch       {called['launch_ms']:8.1f} ms")


if __name__ == "__main__":
    main()

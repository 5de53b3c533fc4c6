"""How good configs are that were inherited from other sizes, on a recorded table of many sizes.

    python benchmarks/inherit.py [--table h200-gemm-576] [--splits 5] [--json]

In each split three quarters of the sizes, drawn at random, are in the store, and the rest inherits:
without a measurement, and with three (of three candidates, the fastest in one visit). `full` stores
all samples; `raced` what a race would leave: one sample of what is 1.5 times slower than the best,
none of what is 4 times slower. The time of a first pick is that of a new process with a model
beside its store. Exit code 1: a figure is below what is wanted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from whet.core.config import Config
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.engine.fallback.inheritance import inheritance_candidates, inherited, refresh_models
from whet.replay import Table, TableWorkload, read_table
from whet.store import MemoryStore, Store, open_store
from whet.testing.fake_target import FakeTarget

WANTED = {"full": 0.98, "raced": 0.98}
WANTED_WITH_3, WANTED_WORST = 0.993, 0.80
KNOWN_SHARE = 0.75
FEW_SAMPLES, NO_SAMPLES, FINALISTS = 1.5, 4.0, 1.03


class Recorded(FakeTarget):
    """A workload of a table, for which nothing can be built or run."""

    def __init__(self, table: Table, workload: TableWorkload) -> None:
        super().__init__(table.space, lambda config: 0.0)
        self._described = table.described(workload)
        self.method = None  # however the table was timed

    def workload(self) -> Workload:
        return self._described


@dataclass
class Shares:
    """Of the best speed, one a key and split; `sources` counts where the picks came from."""

    at_once: list[list[float]] = field(default_factory=list)
    with_three: list[list[float]] = field(default_factory=list)
    nearest: list[list[float]] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)


def full(
    table: Table, workload: TableWorkload, at: int, rng: np.random.Generator
) -> tuple[Status | None, tuple[float, ...]]:
    return table.status(workload, at), tuple(np.concatenate(workload.samples(at) or ((),)))


def raced(
    table: Table, workload: TableWorkload, at: int, rng: np.random.Generator
) -> tuple[Status | None, tuple[float, ...]]:
    visits, optimum = workload.samples(at), workload.optimum
    if not visits or optimum is None:
        return table.status(workload, at), ()
    slower = float(workload.medians[at]) / optimum.ns
    visit = visits[rng.integers(len(visits))]
    if slower < FEW_SAMPLES:
        return Status.OK if slower < FINALISTS else Status.OUTRACED, visit
    return Status.OUTRACED, visit[:1] if slower < NO_SAMPLES else ()


HOW: dict[str, Callable[..., tuple[Status | None, tuple[float, ...]]]] = {
    "full": full,
    "raced": raced,
}


def fill(store: Store, table: Table, known: Sequence[int], how: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for number in known:
        workload = table.workloads[number]
        described = table.described(workload)
        store.put_workload(described)
        trials = []
        for at, config in enumerate(table.configs):
            status, samples = HOW[how](table, workload, at, rng)
            if status is not None:
                timing = Timing(samples, table.origin.timer or "table") if samples else None
                trials.append(Trial(described.id, config, status, timing))
        store.append(trials)


def split(table: Table, seed: int) -> tuple[list[int], list[int]]:
    order = np.random.default_rng(seed).permutation(len(table.workloads)).tolist()
    known = round(KNOWN_SHARE * len(order))
    return order[:known], order[known:]


def share(table: Table, workload: TableWorkload, config: Config) -> float:
    """Of the best speed; of a config that does not run, a hundredth."""
    at, optimum = table.index(config), workload.optimum
    ns = None if at is None else workload.median_ns(at)
    return 0.01 if ns is None or optimum is None else optimum.ns / ns


def fastest(
    table: Table, workload: TableWorkload, configs: Sequence[Config], rng: np.random.Generator
) -> Config:
    """By the median of one visit to each, drawn at random."""
    times = {}
    for config in configs:
        visits = workload.samples(table.index(config) or 0)
        if visits:
            times[config] = median(visits[rng.integers(len(visits))])
    return min(times, key=times.__getitem__, default=configs[0])


def measure(table: Table, how: str, splits: int) -> Shares:
    shares = Shares()
    for seed in range(splits):
        store, models = MemoryStore(), dict[str, str]()
        known, asked = split(table, seed)
        fill(store, table, known, how, seed)
        rng = np.random.default_rng(seed)
        rows: tuple[list[float], list[float], list[float]] = ([], [], [])
        for number in asked:
            workload = table.workloads[number]
            target = Recorded(table, workload)
            choice = inherited(target, store, models=models, fit=True)
            near = inherited(target, store, models={})
            three = inheritance_candidates(target, store, 3, models=models)
            assert choice is not None
            assert near is not None
            picked = fastest(table, workload, three, rng)
            for row, config in zip(rows, (choice.config, picked, near.config), strict=True):
                row.append(share(table, workload, config))
            shares.sources[choice.source] = shares.sources.get(choice.source, 0) + 1
        shares.at_once.append(rows[0])
        shares.with_three.append(rows[1])
        shares.nearest.append(rows[2])
    return shares


def mean_of_splits(splits: Sequence[Sequence[float]]) -> float:
    return mean(float(np.exp(np.mean(np.log(row)))) for row in splits)


def child(table: Table, path: str, number: int) -> None:
    target = Recorded(table, table.workloads[number])
    for _ in range(2):
        began = time.perf_counter()
        with open_store(path, read_only=True) as store:
            choice = inherited(target, store)
        assert choice is not None
        ms = 1e3 * (time.perf_counter() - began)
        print(json.dumps({"ms": ms, "source": choice.source, "sklearn": "sklearn" in sys.modules}))


def first_pick(name: str, table: Table) -> dict[str, Any]:
    """In a process of its own, which must not import scikit-learn; its second pick has the model
    in memory."""
    known, asked = split(table, 0)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "store.db")
        with open_store(path) as store:
            fill(store, table, known, "full", 0)
            began = time.perf_counter()
            refresh_models(store)
            fit_s = time.perf_counter() - began
        models = list(Path(f"{path}.models").iterdir())
        done = subprocess.run(
            [sys.executable, __file__, "--table", name, "--child", path, str(asked[0])],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        )
        first, second = map(json.loads, done.stdout.splitlines())
        return {
            "fit_s": fit_s,
            "model_bytes": sum(one.stat().st_size for one in models),
            "first_ms": first["ms"],
            "second_ms": second["ms"],
            "source": first["source"],
            "imports_sklearn": second["sklearn"],
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--table", default="h200-gemm-576")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    table = read_table(given.table)
    if given.child:
        child(table, given.child[0], int(given.child[1]))
        return 0
    report: dict[str, Any] = {}
    for how in HOW:
        shares = measure(table, how, given.splits)
        figures = {
            "at_once": mean_of_splits(shares.at_once),
            "at_once_worst": min(map(min, shares.at_once)),
            "with_3": mean_of_splits(shares.with_three),
            "with_3_worst": min(map(min, shares.with_three)),
            "nearest_alone": mean_of_splits(shares.nearest),
            "nearest_alone_worst": min(map(min, shares.nearest)),
        }
        figures["good"] = (
            figures["at_once"] >= WANTED[how]
            and figures["with_3"] >= WANTED_WITH_3
            and min(figures["at_once_worst"], figures["with_3_worst"]) >= WANTED_WORST
        )
        report[how] = {**figures, "shares": asdict(shares)}
    report["cost"] = first_pick(given.table, table)
    good = all(report[how]["good"] for how in HOW) and not report["cost"]["imports_sklearn"]
    if given.json:
        print(json.dumps(report))
    else:
        _print(report)
    return 0 if good else 1


def _print(report: dict[str, Any]) -> None:
    for how in HOW:
        row = report[how]
        print(f"{'ok ' if row['good'] else 'LOW'} {how}")
        for name in ("at_once", "with_3", "nearest_alone"):
            worst = row[f"{name}_worst"]
            print(f"    {name.replace('_', ' '):16} {row[name]:7.2%}   worst {worst:6.1%}")
    cost = report["cost"]
    print(f"fitting {cost['fit_s']:.1f} s, {cost['model_bytes'] / 1e3:.0f} kB")
    print(f"first pick of a process {cost['first_ms']:.0f} ms, second {cost['second_ms']:.0f} ms")


if __name__ == "__main__":
    raise SystemExit(main())

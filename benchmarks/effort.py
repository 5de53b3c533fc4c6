"""What `effort="quick"` leaves out and what that costs, on lists of configs from recorded tables.

    python benchmarks/effort.py [TABLE…] [--lists 30] [--jobs 4] [--seed 0] [--json]

A list is what an author might have written: some configs of a table at random, or every
combination of some values of each parameter that the table has. The author's first config is the
list's first. Build times and samples are the recorded ones. Exit code 1: on average more than 60 %
of the build time was used, or more than 2 % of speed was lost.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

import numpy as np

from whet.core.config import Config
from whet.core.space import Space
from whet.core.trial import Trial
from whet.replay import Table, TableWorkload, read_table, shipped, simulate
from whet.replay.simulation import build_s
from whet.search.quick import Quick

SIZES = (10, 16, 24, 32, 48, 64, 100)
SAMPLES = 6
MOST_BUILD_SHARE, MOST_LOSS = 0.60, 0.02


class AsTheEngineAsks:
    """The author's first config comes with the first batch, whatever the strategy thinks of it."""

    name, guided = "quick", True

    def __init__(self, space: Space, seed: int) -> None:
        self._first = space.first
        self._quick = Quick(space, seed)
        self._begun = False

    def ask(self, n: int) -> list[Config]:
        if self._begun or self._first is None:
            return self._quick.ask(n)
        self._begun = True
        more = [config for config in self._quick.ask(n - 1) if config != self._first]
        return [self._first, *more]

    def tell(self, trials: Sequence[Trial]) -> None:
        self._quick.tell(trials)


@dataclass(frozen=True)
class Spared:
    """Of one list: which share of it was tried, of its build time used, of its best speed lost."""

    size: int
    tried: float
    build: float
    loss: float


@dataclass(frozen=True)
class Row:
    lists: str
    count: int
    tried: float
    build: float
    loss: float
    loss_90: float
    within: float


def quick_on(table: Table, workload: TableWorkload, listed: Sequence[int], jobs: int) -> Spared:
    space = Space([table.configs[at] for at in listed])
    seed = listed[0]
    course = simulate(
        table,
        workload,
        AsTheEngineAsks(space, seed),
        len(listed),
        seed=seed,
        batch=jobs,
        samples=SAMPLES,
    )
    tried = dict.fromkeys(course.evaluations)
    best = min(ns for at in listed if (ns := workload.median_ns(at)) is not None)
    return Spared(
        len(listed),
        len(tried) / len(listed),
        sum(build_s(table, at) for at in tried) / sum(build_s(table, at) for at in listed),
        course.best_ns[-1] / best - 1,
    )


def lists_of(
    table: Table, count: int, seed: int
) -> Iterator[tuple[str, int, TableWorkload, list[int]]]:
    draw = random.Random(seed)
    values = {
        name: sorted({config[name] for config in table.configs}, key=str)
        for name in table.configs[0]
    }
    for size in SIZES:
        for kind in ("random", "combined"):
            for _ in range(count):
                workload = draw.choice(table.workloads)
                known = [
                    at for at in range(len(table.configs)) if table.status(workload, at) is not None
                ]
                listed = (
                    sorted(draw.sample(known, min(size, len(known))))
                    if kind == "random"
                    else _combined(table, known, values, size, draw)
                )
                if any(workload.median_ns(at) is not None for at in listed):
                    yield kind, size, workload, listed


def _combined(
    table: Table, known: Sequence[int], values: dict[str, list[Any]], size: int, draw: random.Random
) -> list[int]:
    """Empty where a hundred draws give no list of about that size."""
    for _ in range(100):
        kept = {
            name: set(draw.sample(some, min(len(some), draw.choice((1, 2, 2, 3, 4)))))
            for name, some in values.items()
        }
        found = [
            at for at in known if all(value in kept[n] for n, value in table.configs[at].items())
        ]
        if 0.7 * size <= len(found) <= 1.3 * size:
            return found
    return []


def row(name: str, found: Sequence[Spared]) -> Row:
    losses = [one.loss for one in found]
    return Row(
        name,
        len(found),
        mean(one.tried for one in found),
        mean(one.build for one in found),
        mean(losses),
        float(np.quantile(losses, 0.9)),
        mean(loss <= MOST_LOSS for loss in losses),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tables", nargs="*", default=list(shipped()))
    parser.add_argument("--lists", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    by_size: dict[int, list[Spared]] = {}
    by_table: dict[str, list[Spared]] = {}
    for name in given.tables:
        table = read_table(name)
        for _, size, workload, listed in lists_of(table, given.lists, given.seed):
            one = quick_on(table, workload, listed, given.jobs)
            by_size.setdefault(size, []).append(one)
            by_table.setdefault(str(name).rpartition("/")[2], []).append(one)
    everything = [one for some in by_size.values() for one in some]
    rows = [
        *(row(f"about {size} configs", some) for size, some in sorted(by_size.items())),
        *(row(name, some) for name, some in by_table.items()),
        row("all", everything),
    ]
    if given.json:
        print(json.dumps([asdict(one) for one in rows], indent=1))
    else:
        print("| lists | count | configs tried | build time | loss | loss, 90 % of lists | ≤ 2 % |")
        print("|---|---|---|---|---|---|---|")
        for shown in rows:
            print(
                f"| {shown.lists} | {shown.count} | {shown.tried:.0%} | {shown.build:.0%} "
                f"| {shown.loss:.1%} | {shown.loss_90:.1%} | {shown.within:.0%} |"
            )
    total = rows[-1]
    return int(total.build > MOST_BUILD_SHARE or total.loss > MOST_LOSS)


if __name__ == "__main__":
    raise SystemExit(main())

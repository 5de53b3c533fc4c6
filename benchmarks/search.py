"""How soon `auto` is near the best, on recorded tables: alone, with transfer, from size to size.

    python benchmarks/search.py TABLE… [--sizes TABLE] [--search auto] [--repeats 20] [--jobs N]
                                [--no-transfer] [--json]

TABLE… are of one workload each, as in the public hub; those that tune the same parameters teach
each other. `--sizes` is a table of many workloads, tuned one after another, each learning from what
was tried on those before it. Exit code 1: a figure is below what is wanted.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np

from whet.core.config import Config
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.engine.settings import usable_cores
from whet.replay import Table, read_table, simulate
from whet.replay.lab import Case, Experiment, Replayed, cases_of, replay
from whet.search import Strategy, make_strategy

LOOKS = (10, 25, 50, 100)
WANTED_ALONE = {25: 0.90, 50: 0.94, 100: 0.97}
WANTED_WORST_TABLE = 0.80
WANTED_TRANSFER_AT_10 = 0.95
MOST_LOST_BY_TRANSFER = 0.01
TAUGHT_SIZES, LATER_EVALS, WANTED_LATER = 8, 5, 0.98
WANTED_MS = {18_000: 10.0, 100_000: 30.0}
WANTED_MB = 500.0


@dataclass(frozen=True)
class Figure:
    name: str
    wanted: str
    measured: float
    good: bool


class Listening:
    """A strategy that also keeps what it is told."""

    def __init__(self, strategy: Strategy) -> None:
        self.name = strategy.name
        self.guided = strategy.guided
        self.ask = strategy.ask
        self._tell = strategy.tell
        self.trials: list[Trial] = []

    def tell(self, trials: Sequence[Trial]) -> None:
        self.trials += trials
        self._tell(trials)


def at_least(name: str, measured: float, wanted: float) -> Figure:
    return Figure(name, f"≥ {wanted:g}", measured, measured >= wanted)


def at_most(name: str, measured: float, wanted: float) -> Figure:
    return Figure(name, f"≤ {wanted:g}", measured, measured <= wanted)


def alone(found: Sequence[Replayed]) -> list[Figure]:
    means = {look: [mean(one.fractions(look)) for one in found] for look in LOOKS}
    return [
        *(at_least(f"mean at {n}", mean(means[n]), wanted) for n, wanted in WANTED_ALONE.items()),
        at_least("worst table at 100", min(means[100]), WANTED_WORST_TABLE),
    ]


def transferred(found: Sequence[Replayed], before: Sequence[Replayed]) -> list[Figure]:
    taught = [one for one in found if one.case.sources]
    if not taught:
        return []
    same = [next(b for b in before if b.case.workload is one.case.workload) for one in taught]
    lost = max(
        mean(b.fractions(100)) - mean(one.fractions(100))
        for one, b in zip(taught, same, strict=True)
    )
    first = mean(mean(one.fractions(10)) for one in taught)
    return [
        at_least("transfer: mean at 10", first, WANTED_TRANSFER_AT_10),
        at_most("transfer: most lost at 100", lost, MOST_LOST_BY_TRANSFER),
    ]


def size_by_size(table: Table, search: str, repeats: int, samples: int = 3) -> list[Figure]:
    """As the engine does it with a store: the first sizes are raced whole, and for each of the
    others what was measured at the sizes before it counts by how near they are."""
    from whet.learn.prior import prior_for

    later = []
    for seed in range(repeats):
        order = np.random.default_rng(seed).permutation(len(table.workloads))
        known: list[tuple[Mapping[str, Any], list[Trial]]] = []
        for place, number in enumerate(order):
            case = Case("", table, table.workloads[number])
            key, optimum = case.workload.key, case.workload.optimum
            assert optimum is not None
            if place < TAUGHT_SIZES:
                strategy, evals = make_strategy("random", case.space, seed), len(table.configs)
            else:
                prior = prior_for(key, case.space, known, seed=seed)
                strategy = make_strategy(search, case.space, seed, transfer=prior)
                evals = LATER_EVALS
            listening = Listening(strategy)
            course = simulate(table, case.workload, listening, evals, seed=seed, samples=samples)
            known.append((key, listening.trials))
            if place >= TAUGHT_SIZES:
                later.append(course.fraction(evals, optimum.ns))
    name = f"{LATER_EVALS} evaluations from the 9th size on, {samples} samples each"
    return [at_least(name, mean(later), WANTED_LATER)]


def own_time(search: str, evals: int = 100) -> list[Figure]:
    """On made-up spaces of a known size, with a smooth objective."""
    figures = []
    for size, wanted in WANTED_MS.items():
        space = Space({"a": list(range(size // 1000)), "b": list(range(100)), "c": [*range(10)]})
        began = time.perf_counter()
        strategy = make_strategy(search, space, 0)
        for _ in range(evals):
            strategy.tell([_answer(config) for config in strategy.ask(1)])
        ms = 1e3 * (time.perf_counter() - began) / evals
        figures.append(at_most(f"ms an evaluation, {size} configs", ms, wanted))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*figures, at_most("peak MB of the whole benchmark", peak, WANTED_MB)]


def _answer(config: Config) -> Trial:
    numbers = [float(str(value)) for value in config.values()]
    ns = 1000.0 + sum((value - 5) ** 2 for value in numbers)
    return Trial("", config, Status.OK, Timing((ns, ns * 1.01, ns * 0.99), "made up"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    parser.add_argument("--sizes", metavar="TABLE")
    parser.add_argument("--search", default="auto")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=usable_cores())
    parser.add_argument("--no-transfer", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = own_time(given.search)
    rows: list[dict[str, Any]] = []
    if given.tables:
        cases = [case for name in given.tables for case in cases_of(name, read_table(name))]
        plain = Experiment(tuple(cases), (given.search,), LOOKS[-1], given.repeats)
        before = replay(plain, given.jobs)
        figures += alone(before)
        rows += [_row(one, "alone") for one in before]
        if not given.no_transfer:
            taught = tuple(case.with_sources(cases) for case in cases)
            after = replay(
                Experiment(taught, (given.search,), LOOKS[-1], given.repeats), given.jobs
            )
            figures += transferred(after, before)
            rows += [_row(one, "transfer") for one in after if one.case.sources]
    if given.sizes:
        figures += size_by_size(read_table(given.sizes), given.search, min(5, given.repeats))
    if given.json:
        print(json.dumps({"figures": [vars(one) for one in figures], "tables": rows}, indent=2))
    else:
        _print(figures, rows)
    return 0 if all(one.good for one in figures) else 1


def _row(one: Replayed, how: str) -> dict[str, Any]:
    found = {str(look): round(mean(one.fractions(look)), 4) for look in LOOKS}
    own_ms = round(one.search_ms_per_eval, 3)
    return {"table": one.case.name, "how": how, "found": found, "search_ms_per_eval": own_ms}


def _print(figures: Sequence[Figure], rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        found = "  ".join(f"{value:.3f}" for value in row["found"].values())
        name = row["table"].rpartition("/")[2].partition(".")[0]
        print(f"{name:28} {row['how']:9} {found}  {row['search_ms_per_eval']:.2f} ms")
    for one in figures:
        print(
            f"{'ok  ' if one.good else 'LOW '} {one.name}: {one.measured:.4g} (wanted {one.wanted})"
        )


if __name__ == "__main__":
    raise SystemExit(main())

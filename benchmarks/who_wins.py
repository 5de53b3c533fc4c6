"""Which config wins, when nobody knows the noise: race and duels on simulated kernels.

    python benchmarks/who_wins.py                          every cell, some minutes on two cores
    python benchmarks/who_wins.py --base ../whet-before    beside another checkout's rule
    python benchmarks/who_wins.py --seeds 40 --sizes 2     a glance

A cell is an effect (how much longer the author's first config takes than the fastest one), a kind
of noise, a number of configs and a budget in samples for each. The very race and duels that tune
kernels run on it, on a clock that only samples move, and once more told the noise of a sample. The
others take as long as the first config or up to three times as long; with no effect all are equal.
`missed` is how often the pick was slower than the best by more than half of the effect, of the runs
that had the time to look at the best; `left` how
often the first config was left though nothing is faster, `regret` how much longer the pick takes
than the best on average, `cut` how often the pick was not confirmed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.engine.plan import Plan
from whet.engine.steps.finals import Duels, race
from whet.engine.steps.record import Candidate
from whet.engine.steps.samples import Sampler
from whet.measure import Reading
from whet.measure.bench.protocol import Sampled, Visit
from whet.measure.racing.race import Race
from whet.measure.racing.stats import Noise

EFFECTS = (0.0, 0.01, 0.02, 0.2, 1.0, 19.0)
NOISES = ("1 %", "10 %", "50 %", "bursts", "drift")
SIZES = (2, 16, 132)
BUDGETS = (1, 2, 3, 6, 12, 40, 150)
BEST_NS = 10e6


@dataclass(frozen=True)
class Cell:
    effect: float
    noise: str
    size: int
    budget: int

    @property
    def sigma(self) -> float:
        return {"10 %": 0.1, "50 %": 0.5, "bursts": 0.02}.get(self.noise, 0.01)

    @property
    def name(self) -> str:
        return f"{self.effect:g}/{self.noise}/{self.size}/{self.budget}"

    def times(self, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float64]]:
        first = BEST_NS * (1 + self.effect)
        slower = 1.0 if self.effect == 0 else np.exp(rng.uniform(0, math.log(3), self.size))
        times = np.full(self.size, first) * slower
        times[0] = first
        times[rng.integers(1, self.size)] = BEST_NS
        return np.asarray(times)


class Known(Noise):
    """The noise, told."""

    def __init__(self, sigma: float) -> None:
        super().__init__(sigma)

    def add(self, logs: Any) -> None:
        pass

    @property
    def sigma(self) -> float:
        return self._floor

    @property
    def known(self) -> tuple[float, int]:
        return self._floor, 1000

    def quantile(self, confidence: float) -> float:
        from whet.measure.racing.stats import normal_quantile

        return normal_quantile((1 + confidence) / 2)


@dataclass
class Device:
    """A bench, a guard and a clock in one: sampling is all that takes time."""

    cell: Cell
    times: dict[str, float]
    rng: np.random.Generator
    whole_s: float
    elapsed: float = 0.0
    in_process: bool = False
    forgotten: set[str] = field(default_factory=set)

    def measure(self, visit: Visit) -> tuple[Sampled, ...]:
        taken: dict[str, list[float]] = {}
        for config, _ in visit.built:
            ns = self.times[config.id]
            few = getattr(visit, "samples_of", None)
            for _ in range(few(ns) if visit.first and few else visit.samples):
                taken.setdefault(config.id, []).append(self._sample(ns))
        return tuple(Sampled(_reading(samples), FrozenMap()) for samples in taken.values())

    def _sample(self, ns: float) -> float:
        logs = float(self.rng.normal(0, self.cell.sigma))
        if self.cell.noise == "bursts" and self.rng.random() < 0.1:
            logs += math.log(self.rng.uniform(1.5, 4))
        if self.cell.noise == "drift":
            logs += 0.3 * self.elapsed / self.whole_s
        self.elapsed += ns / 1e9
        return ns * math.exp(logs)

    def forget(self, config: Config) -> None:
        self.forgotten.add(config.id)

    @property
    def ledger(self) -> Device:
        return self

    @contextmanager
    def visit(self, *_: object, **__: object) -> Iterator[dict[str, float]]:
        yield {}


def _reading(samples: list[float]) -> Reading:
    return Reading(tuple(samples), 1, "simulated")


class Quiet:
    """Takes every note."""

    def measured_all(self, outcomes: Any) -> list[Any]:
        return [None] * len(outcomes)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def one_run(cell: Cell, seed: int, told: bool) -> tuple[float, bool, bool, bool]:
    """How many times the best's time the pick takes, whether the first was left, whether the pick
    was not confirmed, and whether the best was looked at."""
    rng = np.random.default_rng([seed, *cell.name.encode()])
    configs = [Config({"n": n}) for n in range(cell.size)]
    times = dict(zip((config.id for config in configs), cell.times(rng).tolist(), strict=True))
    whole_s = cell.budget * sum(times.values()) / 1e9
    device = Device(cell, times, rng, whole_s)
    plan = Plan()
    racing = Race(plan.race)
    if told:
        racing._looks._noise = Known(max(cell.sigma, plan.race.noise_floor))
    space = SimpleNamespace(first=configs[0], count=cell.size)
    sampler = Sampler(
        target=SimpleNamespace(space=space),
        builds=Quiet(),  # type: ignore[arg-type]
        bench=device,  # type: ignore[arg-type]
        race=racing,
        plan=plan,
        recorder=Quiet(),  # type: ignore[arg-type]
        guard=device,  # type: ignore[arg-type]
        run_limit_s=60,
        first_call_limit_s=60,
        jobs=1,
        budget=Budget(seconds=whole_s),
        candidates={},
    )
    for order, config in enumerate(configs):
        kept_s = getattr(sampler, "finals_s", min(5.0, 0.2 * whole_s))
        if order and sampler.seconds_left <= kept_s:
            break
        candidate = sampler.candidates[config.id] = Candidate(config, order)
        sampler.look([candidate])
        assert candidate.timing is not None
        racing.enter(config.id, order)
        sampler.put_out(racing.record(config.id, candidate.timing.samples))
        for request in racing.plan(more=True):
            sampler.sample(sampler.candidates[request.id], request.samples)
    found: Any = race(sampler)
    finalists, complete = found if isinstance(found, tuple) else (found, True)
    winner = Duels(sampler).winner(finalists)
    assert winner is not None
    cut = not (complete and getattr(winner, "confirmed", True))
    ratio = times[winner.candidate.id] / BEST_NS
    seen = min(times, key=lambda id: times[id]) in sampler.candidates
    return ratio, winner.candidate.config != configs[0], cut, seen


def one_cell(asked: tuple[Cell, int, bool]) -> dict[str, float]:
    cell, seeds, told = asked
    runs = [one_run(cell, seed, told) for seed in range(seeds)]
    limit = 1 + cell.effect / 2
    seen = [ratio for ratio, _, _, seen in runs if seen]
    return {
        "missed": sum(ratio > limit for ratio in seen) / max(1, len(seen)),
        "unseen": 1 - len(seen) / seeds,
        "left": sum(left for _, left, _, _ in runs) / seeds,
        "regret": sum(ratio for ratio, *_ in runs) / seeds - 1,
        "cut": sum(cut for *_, cut, _ in runs) / seeds,
    }


def all_cells(cells: list[Cell], seeds: int, told: bool) -> dict[str, dict[str, float]]:
    longest = sorted(cells, key=lambda cell: -cell.size * cell.budget)
    with ProcessPoolExecutor() as pool:
        asked = [(cell, seeds, told) for cell in longest]
        return dict(zip((cell.name for cell in longest), pool.map(one_cell, asked), strict=True))


def of_base(base: Path, arguments: list[str]) -> dict[str, dict[str, float]]:
    """The same script on another source."""
    done = subprocess.run(
        [sys.executable, __file__, "--alone", *arguments],
        env={**os.environ, "PYTHONPATH": str(base / "src")},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--effects", type=float, nargs="+", default=list(EFFECTS))
    parser.add_argument("--noises", nargs="+", default=list(NOISES))
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument("--base", type=Path, help="a checkout to compare with")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    cells = [
        Cell(effect, noise, size, budget)
        for effect in asked.effects
        for noise in asked.noises
        for size in asked.sizes
        for budget in asked.budgets
    ]
    now = all_cells(cells, asked.seeds, told=False)
    if asked.alone:
        print(json.dumps(now))
        return
    told = all_cells(cells, asked.seeds, told=True)
    given = [word for word in sys.argv[1:] if word != "--json"]
    if asked.base is not None:
        at = given.index("--base")
        del given[at : at + 2]
    base = None if asked.base is None else of_base(asked.base, given)
    sums = {"now": now, "told": told}
    if asked.json:
        print(json.dumps(sums | ({} if base is None else {"base": base})))
        return
    show(cells, now, told, base)


Found = dict[str, dict[str, float]]


def show(cells: list[Cell], now: Found, told: Found, base: Found | None) -> None:
    print(
        "effect  noise   configs  samples   missed: now  told  base   left  regret: now  base   cut"
    )
    for cell in cells:
        one, other, before = now[cell.name], told[cell.name], (base or {}).get(cell.name)
        texts = [
            f"{cell.effect:>6.0%}  {cell.noise:<6}  {cell.size:>7}  {cell.budget:>7}",
            f"{one['missed']:>8.1%} {other['missed']:>5.1%}",
            "    –" if before is None else f"{before['missed']:>5.1%}",
            f"{one['left']:>7.1%} {one['regret']:>7.2%}",
            "     –" if before is None else f"{before['regret']:>6.2%}",
            f"{one['cut']:>5.0%}",
        ]
        print(" ".join(texts))
    large = [cell for cell in cells if cell.effect >= 0.2]
    behind = max((now[c.name]["missed"] - told[c.name]["missed"] for c in large), default=0)
    print(
        f"missed more often than by a rule that knows the noise: at most {100 * behind:.1f} points"
    )
    huge = max((now[cell.name]["missed"] for cell in cells if cell.effect >= 19), default=0)
    print(f"20 times slower kept: {huge:.1%}")
    equal = [cell for cell in cells if cell.effect == 0]
    for cell in (c for c in equal if now[c.name]["cut"] < 0.5 and now[c.name]["left"] > 0.05):
        print(f"equals left in {now[cell.name]['left']:.1%}: {cell.name}")
    if base is not None:
        worse = {c.name: now[c.name]["regret"] - base[c.name]["regret"] for c in cells}
        at = max(worse, key=lambda name: worse[name])
        print(f"mean regret above the base's: at most {100 * worse[at]:.2f} points, at {at}")


class _Raw(argparse.RawDescriptionHelpFormatter):
    pass


if __name__ == "__main__":
    main()

"""Tuning time against what it finds: the simulation of the paper on Triton's tuning cost.

Its assumptions: random configs that all work; each is compiled once and executed until `EXEC_TIME`
is exceeded; the total is the sum of these and of an overhead by input. Parallel compilation divides
compile time by N / ceil(N / factor). Early stopping ends a config after `EARLY_STOP_NUM` executions
if their mean is above the lowest execution time seen times `EARLY_STOP_THRESHOLD`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from whet.measure.racing.duel import Duel
from whet.measure.racing.race import Race
from whet.replay.lab import forked
from whet.replay.simulation import NS_PER_S, Overhead, build_s
from whet.replay.table import Table, TableWorkload

# Where a table says nothing of loading and warming up.
UNKNOWN_OVERHEAD_S = 0.1

SEQUENTIAL = "sequential"

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Take = Callable[[int, int], list[float]]


@dataclass(frozen=True)
class Draws:
    """How hyper-parameters are drawn; the ends of a range belong to it."""

    draws: int = 500
    runs: int = 30
    exec_ms: tuple[float, float] = (10.0, 100.0)
    configs: tuple[int, int] = (1, 80)
    compile_factor: int = 16
    stop_num: tuple[int, int] = (2, 100)
    stop_threshold: tuple[float, float] = (1.0, 1.1)
    seed: int = 0

    @property
    def parallel(self) -> str:
        return f"parallel compilation ({self.compile_factor}×)"

    def compile_share(self, configs: Ints) -> Array:
        """One over the effective factor, N / ceil(N / factor)."""
        return np.asarray(np.ceil(configs / self.compile_factor) / configs)


@dataclass(frozen=True, eq=False)
class Cloud:
    """Simulated tunings: one row a draw of hyper-parameters, one column a run.

    `fraction` is of the optimum's speed. `linked` says that rows share their runs, as the first ten
    evaluations of a tuning are part of its first twenty.
    """

    name: str
    seconds: Array
    fraction: Array
    configs: Ints
    exec_ms: Array | None = None
    linked: bool = False

    def first(self, draws: int) -> Cloud:
        return replace(
            self,
            seconds=self.seconds[:draws],
            fraction=self.fraction[:draws],
            configs=self.configs[:draws],
            exec_ms=None if self.exec_ms is None else self.exec_ms[:draws],
        )


@dataclass(frozen=True, eq=False)
class Paper:
    """The draws made once, so that every variant is simulated on the same runs."""

    repetition: Repetition
    plan: Draws
    configs: Ints
    exec_ms: Array
    workload: Ints
    chosen: Ints
    stop_num: Ints
    stop_threshold: Array
    overhead_known: bool

    @classmethod
    def of(cls, table: Table, workloads: list[TableWorkload], plan: Draws) -> Paper:
        """With several workloads, on each of which something works, every draw is of one."""
        rng = np.random.default_rng(plan.seed)
        repetition = Repetition.of(table, workloads)
        working = np.array([len(one) for one in repetition.indices])
        workload = rng.integers(len(workloads), size=plan.draws)
        most = np.minimum(plan.configs[1], working[workload])
        least = np.minimum(plan.configs[0], most)
        configs = rng.integers(least, most + 1)
        chosen = np.zeros((plan.draws * plan.runs, int(configs.max())), dtype=np.int64)
        for run in range(len(chosen)):
            draw = run // plan.runs
            count = configs[draw]
            chosen[run, :count] = rng.choice(working[workload[draw]], count, replace=False)
        return cls(
            repetition=repetition,
            plan=plan,
            configs=configs,
            exec_ms=rng.uniform(*plan.exec_ms, plan.draws),
            workload=workload,
            chosen=chosen,
            stop_num=rng.integers(plan.stop_num[0], plan.stop_num[1] + 1, plan.draws),
            stop_threshold=rng.uniform(*plan.stop_threshold, plan.draws),
            overhead_known=any(one.spent or one.first for one in workloads),
        )

    def clouds(self) -> list[Cloud]:
        """Sequential, with parallel compilation, with early stopping, and with both."""
        parallel = self.plan.parallel
        share = self.plan.compile_share(self.configs)[:, None]
        every = []
        for stopping, names in (
            (False, (SEQUENTIAL, parallel)),
            (True, ("early stopping", f"early stopping + {parallel}")),
        ):
            repeated, compiled, overhead, fraction = self._runs(stopping)
            for name, compiling in zip(names, (compiled, compiled * share), strict=True):
                spent = repeated + overhead + compiling
                every.append(Cloud(name, spent, fraction, self.configs, self.exec_ms))
        return every

    def _runs(self, stopping: bool) -> list[Array]:
        """Seconds of repetition, of compiling and of overhead, and the fraction found."""
        known, runs = self.repetition, self.plan.runs
        w, configs = self.workload.repeat(runs), self.configs.repeat(runs)
        wanted = self.exec_ms.repeat(runs) / 1e3
        at_most, threshold = self.stop_num.repeat(runs), self.stop_threshold.repeat(runs)
        repeated, compiled, overhead = (np.zeros(len(w)) for _ in range(3))
        best_known, best_estimate = np.full(len(w), np.inf), np.full(len(w), np.inf)
        found = np.zeros(len(w))
        for step in range(self.chosen.shape[1]):
            on = np.flatnonzero(configs > step)
            wl, row = w[on], self.chosen[on, step]
            executions = known.executions(wl, row, wanted[on])
            if stopping:
                early = np.minimum(at_most[on], executions)
                mean = known.spent_s(wl, row, early) / early
                executions = np.where(mean > best_known[on] * threshold[on], early, executions)
            best_known[on] = np.minimum(best_known[on], known.lowest_s(wl, row, executions))
            repeated[on] += known.spent_s(wl, row, executions)
            compiled[on] += known.build_s[wl, row]
            overhead[on] += known.once_s[wl, row] if self.overhead_known else 0.0
            estimate = known.estimate_s(wl, row, executions)
            better = estimate < best_estimate[on]
            best_estimate[on] = np.where(better, estimate, best_estimate[on])
            found[on] = np.where(better, known.true_s[wl, row], found[on])
        if not self.overhead_known:
            overhead += UNKNOWN_OVERHEAD_S
        fraction = known.best_s[w] / found
        shape = (self.plan.draws, runs)
        return [one.reshape(shape) for one in (repeated, compiled, overhead, fraction)]


@dataclass(frozen=True, eq=False)
class Repetition:
    """The configs that work on each of some workloads, and what each of their executions took.

    Arrays are by workload, by config that works there, and by execution in the recorded order; what
    a row lacks is padded. `after` is the sum and `median` the median of the first executions.
    """

    indices: tuple[Ints, ...]
    counts: Ints
    seconds: Array
    after: Array
    median: Array
    lowest: Array
    true_s: Array
    build_s: Array
    once_s: Array

    @classmethod
    def of(cls, table: Table, workloads: list[TableWorkload]) -> Repetition:
        indices = tuple(np.flatnonzero(~np.isnan(one.medians)) for one in workloads)
        rows = max(map(len, indices))
        longest = max(int(np.diff(one.visits.starts).max()) for one in workloads)
        shape = (len(workloads), rows, longest)
        seconds, counts = np.full(shape, np.nan), np.ones(shape[:2], dtype=np.int64)
        true_s, built, once = np.full(shape[:2], np.nan), np.zeros(shape[:2]), np.zeros(shape[:2])
        for w, (workload, listed) in enumerate(zip(workloads, indices, strict=True)):
            starts, flat = workload.visits.starts, workload.visits.flat
            for row, at in enumerate(map(int, listed)):
                taken = flat[starts[at] : starts[at + 1]] / NS_PER_S
                counts[w, row] = len(taken)
                seconds[w, row, : len(taken)] = taken
                built[w, row] = build_s(table, at)
                once[w, row] = Overhead.of(workload, at).once
            true_s[w, : len(listed)] = workload.medians[listed] / NS_PER_S
        return cls(
            indices=indices,
            counts=counts,
            seconds=seconds,
            after=np.cumsum(seconds, axis=2),
            median=_running_median(seconds),
            lowest=np.minimum.accumulate(seconds, axis=2),
            true_s=true_s,
            build_s=built,
            once_s=once,
        )

    @property
    def best_s(self) -> Array:
        """By workload."""
        return np.asarray(np.nanmin(self.true_s, axis=1))

    def executions(self, w: Ints, row: Ints, wanted_s: Array) -> Ints:
        """How many it takes until `wanted_s` is exceeded, the recorded ones over and over."""
        counts = self.counts[w, row]
        whole = self.after[w, row, counts - 1]
        cycles = np.floor(wanted_s / whole)
        rest = wanted_s - cycles * whole
        within = (self.after[w, row] <= rest[:, None]).sum(axis=1)
        return np.asarray(cycles * counts + np.minimum(within, counts - 1) + 1, dtype=np.int64)

    def spent_s(self, w: Ints, row: Ints, executions: Ints) -> Array:
        """What so many executions take together."""
        counts = self.counts[w, row]
        cycles, rest = np.divmod(executions, counts)
        partial = np.where(rest > 0, self.after[w, row, np.maximum(rest, 1) - 1], 0.0)
        return np.asarray(cycles * self.after[w, row, counts - 1] + partial)

    def estimate_s(self, w: Ints, row: Ints, executions: Ints) -> Array:
        """The median of so many executions."""
        return np.asarray(self.median[w, row, np.minimum(executions, self.counts[w, row]) - 1])

    def lowest_s(self, w: Ints, row: Ints, executions: Ints) -> Array:
        return np.asarray(self.lowest[w, row, np.minimum(executions, self.counts[w, row]) - 1])


def _running_median(seconds: Array) -> Array:
    medians = np.empty_like(seconds)
    for taken in range(1, seconds.shape[2] + 1):
        medians[:, :, taken - 1] = np.median(seconds[:, :, :taken], axis=2)
    return medians


class Track:
    """One workload to race on: samples are drawn from those of one visit at a time."""

    def __init__(self, table: Table, workload: TableWorkload) -> None:
        self.works = [int(at) for at in np.flatnonzero(~np.isnan(workload.medians))]
        self.visits = {at: workload.samples(at) for at in self.works}
        self.overhead = {at: Overhead.of(workload, at) for at in self.works}
        self.build_s = {at: build_s(table, at) for at in self.works}
        self.median_ns = workload.medians
        self.best_ns = float(np.nanmin(workload.medians))

    def race(self, chosen: Sequence[int], rng: random.Random) -> tuple[int, float]:
        """The winner among `chosen`, and the seconds it took to load and measure them."""
        spent = 0.0

        def take(at: int, samples: int) -> list[float]:
            nonlocal spent
            visit = rng.choice(self.visits[at])
            drawn = [rng.choice(visit) for _ in range(samples)]
            spent += sum(drawn) / NS_PER_S + samples * self.overhead[at].each
            return drawn

        race = Race()
        for order, at in enumerate(chosen):
            spent += self.overhead[at].once
            race.enter(str(at), order)
            race.record(str(at), take(at, race.policy.first_samples))
            for request in race.plan(more=True):
                race.record(request.id, take(int(request.id), request.samples))
        while requests := race.plan():
            for request in requests:
                if race.verdict(request.id) == "in":
                    race.record(request.id, take(int(request.id), request.samples))
        winner = _duel(race, take)
        return winner, spent


def racing_clouds(
    table: Table,
    workloads: Sequence[TableWorkload],
    paper: Paper,
    draws: int,
    jobs: int = 1,
    done: Callable[[int, int], None] | None = None,
) -> list[Cloud]:
    """The first draws of the paper's simulation, raced instead: with sequential and with parallel
    compilation. `EXEC_TIME` has no meaning here, the race decides how long to look at a config.
    """
    used = sorted({int(number) for number in paper.workload[:draws]})
    tracks = {number: Track(table, workloads[number]) for number in used}
    every: list[list[tuple[float, ...]]] = []
    for one in forked(_race_draw, (paper, tracks), range(draws), jobs):
        every.append(one)
        if done is not None:
            done(len(every), draws)
    found = np.array(every)
    raced, compiled, fraction = (found[:, :, at] for at in range(3))
    configs = paper.configs[:draws]
    share = paper.plan.compile_share(configs)[:, None]
    return [
        Cloud("racing", raced + compiled, fraction, configs),
        Cloud(f"racing + {paper.plan.parallel}", raced + compiled * share, fraction, configs),
    ]


def _race_draw(shared: tuple[Paper, dict[int, Track]], draw: int) -> list[tuple[float, ...]]:
    """By run: seconds of racing and of compiling, and the fraction found."""
    paper, tracks = shared
    track = tracks[int(paper.workload[draw])]
    found: list[tuple[float, ...]] = []
    for run in range(paper.plan.runs):
        rows = paper.chosen[draw * paper.plan.runs + run, : paper.configs[draw]]
        chosen = [track.works[row] for row in rows]
        winner, raced = track.race(chosen, random.Random(f"{paper.plan.seed} {draw} {run}"))
        compiled = sum(track.build_s[at] for at in chosen)
        found.append((raced, compiled, track.best_ns / float(track.median_ns[winner])))
    return found


def _duel(race: Race, take: Take) -> int:
    live = race.live
    duel = Duel(live, order={id: int(id) for id in live}, earlier=race.passes(live))
    while turn := duel.next_round():
        duel.record_round({id: take(int(id), 1)[0] for id in turn})
    return int(duel.outcome.winner or live[0])

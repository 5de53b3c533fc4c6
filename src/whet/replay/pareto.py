"""Tuning time against what it finds: the simulation of the paper on Triton's tuning cost.

Its assumptions: random configs that all work; each is compiled once and executed until `EXEC_TIME`
is exceeded; the total is the sum of these and of an overhead by input. Parallel compilation divides
compile time by N / ceil(N / factor). Early stopping ends a config after `EARLY_STOP_NUM` executions
if their mean is above the lowest execution time seen times `EARLY_STOP_THRESHOLD`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from whet.replay.repetition import Array, Ints, Repetition
from whet.replay.table import Table, TableWorkload

# Where a table says nothing of loading and warming up.
UNKNOWN_OVERHEAD_S = 0.1

SEQUENTIAL = "sequential"


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

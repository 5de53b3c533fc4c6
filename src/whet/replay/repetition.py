"""Recorded executions of many configs as arrays, repeated for as long as one asks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whet.replay.charges import NS_PER_S, Overhead, build_s
from whet.replay.table import Table, TableWorkload

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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

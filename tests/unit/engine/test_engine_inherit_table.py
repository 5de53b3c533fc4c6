"""What inheriting reaches on a recorded GEMM; `benchmarks/inherit.py` has all the figures."""

from __future__ import annotations

from statistics import geometric_mean, median

import numpy as np
import pytest

from whet.core.config import Config
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.engine.fallback.inheritance import inheritance_candidates, inherited
from whet.replay import Table, TableWorkload, read_table
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget


class Recorded(FakeTarget):
    def __init__(self, table: Table, workload: TableWorkload) -> None:
        super().__init__(table.space, lambda config: 0.0)
        self._described = table.described(workload)
        self.method = None  # however the table was timed

    def workload(self) -> Workload:
        return self._described


def trials_of(table: Table, workload: TableWorkload) -> list[Trial]:
    """Of the first visit."""
    id = table.described(workload).id
    trials = []
    for at, config in enumerate(table.configs):
        status, visits = table.status(workload, at), workload.samples(at)
        if status is not None:
            timing = Timing(visits[0], "cuda") if visits else None
            trials.append(Trial(id, config, status, timing))
    return trials


def share(table: Table, workload: TableWorkload, config: Config) -> float:
    at, optimum = table.index(config), workload.optimum
    ns = None if at is None else workload.median_ns(at)
    return 0.01 if ns is None or optimum is None else optimum.ns / ns


def last_visit(table: Table, workload: TableWorkload, config: Config) -> float:
    visits = workload.samples(table.index(config) or 0)
    return median(visits[-1]) if visits else float("inf")


@pytest.mark.slow
def test_sixteen_sizes_inherit_from_forty_eight() -> None:
    pytest.importorskip("sklearn")
    table = read_table("h200-gemm-576")
    at_once, with_three = [], []
    order = np.random.default_rng(0).permutation(len(table.workloads)).tolist()
    store, models = MemoryStore(), dict[str, str]()
    for number in order[:48]:
        store.put_workload(table.described(table.workloads[number]))
        store.append(trials_of(table, table.workloads[number]))
    for number in order[48:]:
        workload = table.workloads[number]
        target = Recorded(table, workload)
        choice = inherited(target, store, models=models, fit=True)
        assert choice is not None
        at_once.append(share(table, workload, choice.config))
        three = inheritance_candidates(target, store, 3, models=models)
        fastest = min(three, key=lambda config: last_visit(table, workload, config))
        with_three.append(share(table, workload, fastest))
    assert geometric_mean(at_once) >= 0.98
    assert geometric_mean(with_three) >= 0.993
    assert min(at_once + with_three) >= 0.80

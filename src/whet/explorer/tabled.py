"""A workload of a recorded table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.timing import Timing, median_interval
from whet.core.trial import Cost, Trial
from whet.explorer.columns import UNTRIED, Remarkable, TrialColumns
from whet.explorer.subject import (
    ColumnReading,
    NotThereError,
    Recorded,
    Subject,
    best_json,
    first_json,
    line_json,
    product_text,
)
from whet.replay.table import TICKS_PER_S, Table, TableWorkload
from whet.store.scanning import TrialRows, values_of


class _Shared:
    """What all keys of a table have in common, worked out once."""

    def __init__(self, table: Table) -> None:
        configs = table.configs
        sizes = [len({repr(one.get(name)) for one in configs}) for name in configs[0]]
        self.product = product_text(sizes, len(configs))
        self.builds = {"build": sum(build.seconds or 0.0 for build in table.builds)}
        for build in table.builds:
            for stage, seconds in build.stages.items():
                name = f"build.{stage}"
                self.builds[name] = self.builds.get(name, 0.0) + seconds


class TableSubject(Subject):
    origin = "table"

    def __init__(
        self, table: Table, workload: TableWorkload, name: str, number: int, shared: _Shared
    ) -> None:
        self._shared = shared
        self._table = table
        self._on = workload
        self._name = name
        self._recorded = Recorded(table, workload)
        self.workload = table.described(workload)
        self.id = f"{self.workload.id}-t{number}"

    def summary(self) -> dict[str, Any]:
        return self._summary

    @cached_property
    def _summary(self) -> dict[str, Any]:
        best = self._best
        medians = self._on.medians
        known = medians[~np.isnan(medians)]
        work = self._work()
        count = len(self._table.configs)
        return line_json(
            self.id,
            self.workload,
            self.origin,
            source_where=self._name,
            best=best_json(best),
            first=first_json(self._table.configs[0], self._on.median_ns(0)),
            speedup=self._speedup(),
            typical_ns=float(np.median(known)) if len(known) else None,
            equals=len(self._equals),
            trials=dict(Counter(map(self._status, range(count)))),
            rows=count,
            configs=count,
            space_size=count,
            space_product=self._shared.product,
            cost_s=sum(seconds for phase, seconds in work.items() if "." not in phase),
            work=work,
            recorded=self._table.origin.date,
        )

    def read(self, wanted: int | None = None) -> ColumnReading:
        return ColumnReading(self._columns, self._columns.rows, True, self.id, self._pointed)

    def encoded(self, first: int) -> list[bytes]:
        rows = self._columns.rows
        return list(self._columns.encoded(first, rows, True, self.id, self._pointed))

    def trial(self, row: int) -> Trial | None:
        if not 0 <= row < len(self._table.configs):
            raise NotThereError(f"there is no row {row} in {self._name}")
        status = self._table.status(self._on, row)
        if status is None:
            return None
        build = self._table.builds[row]
        stages = {f"build.{stage}": seconds for stage, seconds in build.stages.items()}
        built = {} if build.seconds is None else {"build": build.seconds}
        return Trial(
            workload_id=self.workload.id,
            config=self._table.configs[row],
            status=status,
            timing=self._timing(row),
            cost=Cost(FrozenMap({**built, **stages, **self._on.seconds(row)})),
            facts=build.facts,
            error=build.error or self._on.error(row),
            id=f"{self.id}-{row}",
        )

    def all_trials(self) -> Sequence[Trial | None]:
        return [self.trial(row) for row in range(len(self._table.configs))]

    def recorded(self) -> Recorded:
        return self._recorded

    def _timing(self, row: int) -> Timing | None:
        samples = tuple(sample for visit in self._on.samples(row) for sample in visit)
        if not samples:
            return None
        origin = self._table.origin
        return Timing(samples, origin.timer, l2=origin.l2, quality=self._on.quality(row))

    def _status(self, row: int) -> str:
        status = self._table.status(self._on, row)
        return UNTRIED if status is None else str(status)

    @cached_property
    def _best(self) -> Trial | None:
        optimum = self._on.optimum
        return None if optimum is None else self.trial(optimum.index)

    @cached_property
    def _equals(self) -> tuple[str, ...]:
        """Configs whose interval reaches that of the best: these samples do not tell them apart."""
        best = self._best
        interval = None if best is None or best.timing is None else best.timing.interval_ns
        if best is None or interval is None:
            return ()
        near = np.flatnonzero(self._on.medians <= 1.1 * interval[1]).tolist()
        found = []
        for row in near:
            timing = self._timing(row)
            other = None if timing is None else timing.interval_ns
            if other is not None and other[0] <= interval[1]:
                found.append(self._table.configs[row].id)
        return tuple(id for id in found if id != best.config.id)

    def _speedup(self) -> float | None:
        first, best = self._on.median_ns(0), self._on.optimum
        return None if first is None or best is None else first / best.ns

    @property
    def _pointed(self) -> Remarkable:
        best = None if self._best is None else self._best.config.id
        return Remarkable(best, self._table.configs[0].id, self._equals)

    def _work(self) -> dict[str, float]:
        """The builds are those of all keys of the table."""
        phases = self._on.spent.items()
        measured = {phase: sum(t for t in ticks if t > 0) / TICKS_PER_S for phase, ticks in phases}
        return {**self._shared.builds, **measured}

    @cached_property
    def _columns(self) -> TrialColumns:
        columns = TrialColumns()
        columns.extend(self._rows())
        return columns

    def _rows(self) -> TrialRows:
        configs = self._table.configs
        trials = [self.trial(row) for row in range(len(configs))]
        pairs = [self._interval(row) for row in range(len(configs))]
        return TrialRows(
            marks=tuple(range(1, len(configs) + 1)),
            config_ids=[config.id for config in configs],
            statuses=[UNTRIED if one is None else str(one.status) for one in trials],
            median_ns=self._on.medians,
            low_ns=np.array([low for low, _ in pairs], dtype=np.float64),
            high_ns=np.array([high for _, high in pairs], dtype=np.float64),
            created=[0.0] * len(configs),
            run_ids=[""] * len(configs),
            values=values_of(configs),
            cost_s=np.array([0.0 if one is None else one.cost.work_s for one in trials]),
            build_s=np.array(
                [np.nan if one is None else one.cost.work.get("build", np.nan) for one in trials]
            ),
            errors=["" if one is None else one.error for one in trials],
        )

    def _interval(self, row: int) -> tuple[float, float]:
        samples = [sample for visit in self._on.samples(row) for sample in visit]
        return median_interval(samples) or (np.nan, np.nan)


def subjects_of(tables: dict[str, Table]) -> list[TableSubject]:
    found = []
    for number, (name, table) in enumerate(tables.items()):
        shared = _Shared(table)
        found += [TableSubject(table, one, name, number, shared) for one in table.workloads]
    return found

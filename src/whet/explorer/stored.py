"""Workloads to look at: of a store, read in batches as it grows, and of recorded tables."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from whet.core.config import Config
from whet.core.errors import WhetError
from whet.core.frozen import FrozenMap
from whet.core.intermediate import FACT, kept_stages
from whet.core.lazy import cached_property
from whet.core.run import Outcome, Run, chosen_by, speedup_over
from whet.core.timeline import Timeline
from whet.core.timing import Timing, median_interval
from whet.core.trial import Cost, Trial, new_id
from whet.explorer import column_file
from whet.explorer.column_file import SecondHalf
from whet.explorer.columns import UNTRIED, Remarkable, TrialColumns
from whet.explorer.subject import (
    AbsentError,
    ColumnReading,
    NotThereError,
    OriginName,
    Recorded,
    Subject,
    best_json,
    first_json,
    line_json,
    product_text,
)
from whet.replay.recording import table_from_stores
from whet.replay.table import TICKS_PER_S, Table, TableWorkload
from whet.store import StoreReader, WorkloadSummary
from whet.store.scanning import TrialRows, code_folder, column_folder, journey_file, scan, values_of

# The first is small, so that there is something to draw.
FIRST_BATCH, BATCH = 5_000, 20_000
# How long a page waits for its first or its next rows.
FIRST_PATIENCE_S, PATIENCE_S = 0.0, 0.3
# How often it is made sure that what was read is still in the store; it takes tens of milliseconds
# for a million rows.
CHECKED_S = 2.0
MOST_SIMULATED = 20_000


class StoreSubject(Subject):
    def __init__(
        self,
        store: StoreReader,
        workload: WorkloadSummary,
        origin: OriginName = "store",
        *,
        place: str = "",
        beside: bool = False,
    ) -> None:
        """`place` names the store where there are two; `beside` is of the other one."""
        self._store = store
        self._place = place
        self.known = workload
        self.origin = origin
        self.workload = workload.workload
        self.id = f"{self.workload.id}-b" if beside else self.workload.id
        self._scan = scan(store, self.workload.id)
        self._lock = threading.Lock()
        self._columns: TrialColumns | None = None
        self._epoch = new_id()
        folder = column_folder(store)
        self._file = None if folder is None else column_file.path_in(folder, self.workload.id)
        self._journey = journey_file(store, self.workload.id)
        self._kept_rows = 0
        self._checked = 0.0
        self._second: SecondHalf | None = None
        self._undivided = False
        self._recorded: tuple[int, Recorded] | None = None
        self._told: tuple[WorkloadSummary, int, dict[str, Any]] | None = None

    def renew(self, workload: WorkloadSummary) -> None:
        """What the store says of it now."""
        self.known = workload

    @property
    def loaded_rows(self) -> int:
        return 0 if self._columns is None else self._columns.rows

    def forget(self) -> None:
        """Gives the memory back; the next reader reads again."""
        with self._lock:
            self._columns = None
            self._end_second()

    def runs(self) -> Sequence[Run]:
        return self._store.runs(self.workload.id)

    def all_trials(self) -> Sequence[Trial | None]:
        return self._store.trials(self.workload.id, all=True)

    def timeline(self, run_id: str) -> Timeline | None:
        return self._store.timeline(run_id)

    @property
    def lacks_counts(self) -> bool:
        """Whether `summary` has to be told how many configs have which status."""
        return not self.loaded_rows and not self._is_told

    @property
    def _is_told(self) -> bool:
        return self._told is not None and self._told[:2] == (self.known, self.loaded_rows)

    def summary(self, statuses: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Kept until the store says something else of it: a run changes one workload of many."""
        if statuses is not None or self._told is None or not self._is_told:
            self._told = self.known, self.loaded_rows, self._summary(statuses)
        # A report is written after the run's last word.
        told = self._journey is not None and self._journey.is_file()
        return {**self._told[2], "journey": told}

    def _summary(self, statuses: Mapping[str, int] | None) -> dict[str, Any]:
        known, runs = self.known, self.runs()
        columns = self._columns
        if columns is not None and columns.rows:
            statuses = columns.status_counts()
        if statuses is None:
            rest = known.configs - known.ok
            statuses = {"ok": known.ok, **({"other": rest} if rest else {})}
        best = known.best
        chose = None if best is None else chosen_by(runs, best.config)
        first = self._first(runs if chose is None else [chose, *runs])
        first_ns = None if first is None else first.median_ns
        newest = next((run for run in runs if run.outcome is not Outcome.RUNNING), None)
        size = next((run.space_size for run in runs if run.space_size is not None), None)
        return line_json(
            self.id,
            self.workload,
            self.origin,
            place=self._place,
            best=best_json(best),
            contested=len(known.rivals),
            first=first_json(None if first is None else first.config, first_ns),
            speedup=None if best is None else speedup_over(first, best, chose),
            paired=chose is not None and chose.paired_speedup is not None,
            provisional=chose is not None and chose.provisional,
            next="" if newest is None or newest.coverage is None else newest.coverage.next_text,
            typical_ns=self._typical(),
            equals=0 if newest is None else len(newest.equals),
            trials=dict(statuses),
            configs=known.configs,
            rows=known.trials,
            space_size=size,
            space_product=self._product(size),
            cost_s=sum(run.wall_s for run in runs),
            wall=_summed([run.cost.wall for run in runs]),
            work=_summed([run.cost.work for run in runs]),
            running=any(run.outcome is Outcome.RUNNING for run in runs),
            first_seen=min((run.started for run in runs), default=None),
            last_seen=known.active,
        )

    def read(self, wanted: int | None = None) -> ColumnReading:
        """In steps, so that whoever wants a part need not wait for all of it."""
        while True:
            with self._lock:
                found = self._read(self.loaded_rows if wanted is None else wanted)
                if found.complete or wanted is not None:
                    return replace(found, columns=found.columns.snapshot())
            time.sleep(0.002)

    def encoded(self, first: int) -> list[bytes]:
        """Under the lock, since another request may append meanwhile."""
        with self._lock:
            found = self._read(first)
            columns = found.columns
            parts = list(
                columns.encoded(first, found.total, found.complete, found.epoch, found.pointed)
            )
            keep = found.complete and column_file.due(columns, self._kept_rows)
        if keep and self._file is not None:
            threading.Thread(target=self._keep, daemon=True).start()
        return parts

    def trial(self, row: int) -> Trial | None:
        with self._lock:
            columns = self._read(row).columns
            if not 0 <= row < columns.rows:
                raise NotThereError(f"there is no row {row}; the store has {columns.rows:,} rows")
            mark = int(columns.column("mark", row)[0])
        found = self._scan.trial(mark)
        if found is None:
            raise NotThereError(f"row {row} is no longer in the store; reload the page")
        return found

    def stages(self, trial: Trial) -> Mapping[str, str]:
        folder = code_folder(self._store)
        return {} if folder is None else kept_stages(folder, trial.facts.get(FACT))

    def journey(self) -> bytes | None:
        try:
            return None if self._journey is None else self._journey.read_bytes()
        except OSError:
            return None

    def recorded(self) -> Recorded:
        """Of its latest trials; made anew when there are more."""
        if self.known.trials > MOST_SIMULATED:
            raise AbsentError(
                f"{self.known.trials:,} trials are too many to simulate a search on; the limit "
                f"is {MOST_SIMULATED:,}"
            )
        with self._lock:
            count = self._scan.count()
            if self._recorded is None or self._recorded[0] != count:
                try:
                    made = table_from_stores([self._store], workloads=[self.workload])
                except WhetError as error:
                    raise AbsentError(str(error)) from error
                self._recorded = count, Recorded(made, made.workloads[0])
            return self._recorded[1]

    def _read(self, wanted: int | None) -> ColumnReading:
        columns = self._current()
        until = time.monotonic() + (PATIENCE_S if wanted else FIRST_PATIENCE_S)
        complete = False
        while not complete:
            complete = self._read_on(columns)
            now = time.monotonic()
            if wanted is not None and now > (until if columns.rows > wanted else until + 1.0):
                break
        total = columns.rows if complete else max(columns.rows, self.known.trials)
        return ColumnReading(columns, total, complete, self._epoch, self._pointed())

    def _read_on(self, columns: TrialColumns) -> bool:
        """One batch more; whether there is nothing left. While another process reads the second
        half, only the first is read here."""
        if self._undivided and columns.rows:
            # Not sooner: the first drawing wants the cores for itself.
            self._undivided = False
            self._begin_second()
        other = self._second
        batch = BATCH if columns.rows else FIRST_BATCH
        rows = self._scan.rows(columns.last_mark, batch, None if other is None else other.start)
        columns.extend(rows)
        if len(rows) == batch:
            return False
        if other is None:
            self._undivided = False
            return True
        if other.finished(PATIENCE_S):
            later = other.columns()
            self._second = None
            if later is not None and later.rows:
                columns.absorb(later)
        return False

    def _current(self) -> TrialColumns:
        """Begun anew where rows that were read are no longer in the store."""
        columns = self._columns
        now = time.monotonic()
        if columns is not None and now > self._checked + CHECKED_S:
            self._checked = now
            if self._scan.count(columns.last_mark) != columns.rows:
                columns = None
        if columns is None:
            self._epoch = new_id()
            columns = self._from_file() or TrialColumns()
            self._columns = columns
            self._end_second()
            self._undivided = not columns.rows
        columns.started = {run.id: run.started for run in self.runs()}
        return columns

    def _begin_second(self) -> None:
        if self._file is not None:
            location, trials = self._store.location, self.known.trials
            self._second = SecondHalf.of(location, self.workload.id, self._scan, trials)

    def _end_second(self) -> None:
        if self._second is not None:
            self._second.end()
            self._second = None

    def _from_file(self) -> TrialColumns | None:
        if self._file is None or self.known.trials < column_file.FEWEST_ROWS:
            return None
        found = column_file.load(self._file, self._scan)
        self._kept_rows = 0 if found is None else found.rows
        return found

    def _keep(self) -> None:
        """Beside the store, in a thread of its own: nobody waits for it."""
        with self._lock:
            columns = self._columns
            if columns is None or self._file is None:
                return
            if column_file.due(columns, self._kept_rows):
                column_file.save(columns, self._file, self._scan)
                self._kept_rows = columns.rows

    def _pointed(self) -> Remarkable:
        best, runs = self._store.best(self.workload.id), self.runs()
        first = self._first_config(runs)
        newest = next((run for run in runs if run.outcome is not Outcome.RUNNING), None)
        return Remarkable(
            None if best is None else best.config.id,
            None if first is None else first.id,
            () if newest is None else tuple(config.id for config in newest.equals),
        )

    def _first_config(self, runs: Sequence[Run]) -> Config | None:
        return next((run.first for run in runs if run.first is not None), None)

    def _first(self, runs: Sequence[Run]) -> Trial | None:
        config = self._first_config(runs)
        return None if config is None else self._store.latest(self.workload.id, config.id)

    def _typical(self) -> float | None:
        if self._columns is None or not self._columns.rows:
            return None
        columns = self._columns
        medians = columns.column("median_ns")[columns.standing() & columns.measured()]
        return float(np.median(medians)) if len(medians) else None

    def _product(self, size: int | None) -> str | None:
        if self._columns is None:
            return None
        sizes = [len(codes.values) for codes in self._columns.parameters.values()]
        return product_text(sizes, size)


def _summed(ledgers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for ledger in ledgers:
        for phase, seconds in ledger.items():
            sums[phase] = sums.get(phase, 0.0) + seconds
    return sums


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

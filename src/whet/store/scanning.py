"""A workload's trials as columns, in batches, and what was appended since: for whoever looks at a
million of them, and goes on watching."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from whet.core.errors import StoreError
from whet.core.timing import median_interval
from whet.core.trial import Cost, Trial
from whet.store.beside import (
    ADVICE_SUFFIX,
    JOURNEY_SUFFIX,
    advice_folder_of,
    code_folder_of,
    column_folder_of,
    journey_folder_of,
)
from whet.store.connecting import connect
from whet.store.faults import store_error
from whet.store.overlay import OverlayStore
from whet.store.protocol import StoreReader, WorkloadSummary
from whet.store.rows import trial_of, usable_median
from whet.store.sql import SqliteStore
from whet.store.statements import LITE, TRIAL_COLUMNS

Floats = npt.NDArray[np.float64]

# An interval of 95 % around a median wants at least so many samples.
_FEWEST_SAMPLES = 6
_BUSY_S = 10.0

_WORKLOAD = "workload = (SELECT n FROM workloads WHERE id = ?)"
_ROWS = f"""
SELECT n, config_id, status, median_ns, created, run_id, config, cost,
  iif(instr(timing, '"foreign"'), timing, NULL), samples, error
FROM trials WHERE {_WORKLOAD} AND n > ? AND n <= ? ORDER BY n LIMIT ?
"""
_MARK = f"SELECT n FROM trials WHERE {_WORKLOAD} ORDER BY n LIMIT 1 OFFSET ?"
_COUNT = f"SELECT count(*), coalesce(max(n), 0) FROM trials WHERE {_WORKLOAD} AND n <= ?"
_TRIAL = f"SELECT {TRIAL_COLUMNS} FROM trials t WHERE {_WORKLOAD} AND t.n = ?"
_STATUSES = """
SELECT w.id, t.status, count(*) FROM latest l JOIN trials t ON t.n = l.trial
JOIN workloads w ON w.n = l.workload GROUP BY l.workload, t.status
"""
# Of more trials than that, counting them by status takes longer than a person waits.
_MOST_COUNTED = 50_000
_COST_BEGINS = '{"v":1,"work_s":{'
_PHASES = re.compile(r'"([^".]+)":([-+0-9.eE]+)').findall
_LAST_INTEGER = (1 << 63) - 1


@dataclass(frozen=True, eq=False)
class TrialRows:
    """Trials in the order in which they were appended, column by column.

    `marks` name them for `TrialScan.trial`, and the last one says where to go on. Times are NaN
    where there are none, and an interval is where the samples are too few for one. `values` are by
    parameter, None where a config has no such parameter.
    """

    marks: tuple[int, ...]
    config_ids: Sequence[str]
    statuses: Sequence[str]
    median_ns: Floats
    low_ns: Floats
    high_ns: Floats
    created: Sequence[float]
    run_ids: Sequence[str]
    values: Mapping[str, Sequence[Any]]
    cost_s: Floats
    build_s: Floats
    errors: Sequence[str]

    def __len__(self) -> int:
        return len(self.marks)


class TrialScan(Protocol):
    """One workload's trials. Marks grow; what is appended later comes after what was read."""

    def count(self, up_to: int | None = None) -> int:
        """How many there are, superseded ones included; only those up to a mark, where given."""
        ...

    def rows(self, after: int, most: int, up_to: int | None = None) -> TrialRows:
        """At most so many, those after a mark and up to one; 0 is before the first."""
        ...

    def mark_at(self, row: int) -> int | None:
        """The mark of a row, by its number; None where there are fewer."""
        ...

    def trial(self, mark: int) -> Trial | None: ...


def scan(store: StoreReader, workload_id: str) -> TrialScan:
    """From a file by a connection of its own, which no other reader waits for."""
    if isinstance(store, OverlayStore):
        own, under = store.layers
        if not under.trials(workload_id):
            return scan(own, workload_id)
    if isinstance(store, SqliteStore):
        return _FileScan(Path(store.location), workload_id)
    return _ListScan(store, workload_id)


def column_folder(store: StoreReader) -> Path | None:
    """Where columns that are made from a store may be kept beside it; None where nothing may."""
    return _beside(store, column_folder_of)


def code_folder(store: StoreReader) -> Path | None:
    """Where intermediate code of a store's trials is kept, if any was."""
    return _beside(store, code_folder_of)


def journey_file(store: StoreReader, workload_id: str) -> Path | None:
    """Where the report of a model's way to machine code is kept; None where none may be."""
    folder = _beside(store, journey_folder_of)
    if folder is None or not workload_id.isalnum():
        return None
    return folder / f"{workload_id}{JOURNEY_SUFFIX}"


def advice_file(store: StoreReader, workload_id: str) -> Path | None:
    """Where it is kept what a model was asked about a workload; None where none may be."""
    folder = _beside(store, advice_folder_of)
    return None if folder is None else folder / f"{workload_id}{ADVICE_SUFFIX}"


def _beside(store: StoreReader, folder_of: Callable[[str], Path]) -> Path | None:
    if isinstance(store, OverlayStore):
        return _beside(store.layers[0], folder_of)
    return folder_of(store.location) if isinstance(store, SqliteStore) else None


def status_counts(
    store: StoreReader, known: Sequence[WorkloadSummary]
) -> dict[str, dict[str, int]]:
    """The latest trials by workload and status; none where it would take long."""
    if sum(one.trials for one in known) > _MOST_COUNTED:
        return {}
    found: dict[str, dict[str, int]] = {one.workload.id: {} for one in known}
    if isinstance(store, SqliteStore):
        with reading(Path(store.location)) as db:
            for workload, status, count in db.execute(_STATUSES):
                found.setdefault(workload, {})[status] = count
    else:
        for workload, counts in found.items():
            counts.update(Counter(str(trial.status) for trial in store.trials(workload)))
    return found


class _FileScan:
    def __init__(self, path: Path, workload_id: str) -> None:
        self._path = path
        self._workload_id = workload_id

    def count(self, up_to: int | None = None) -> int:
        limit = _LAST_INTEGER if up_to is None else up_to
        with reading(self._path) as db:
            return int(db.execute(_COUNT, (self._workload_id, limit)).fetchone()[0])

    def rows(self, after: int, most: int, up_to: int | None = None) -> TrialRows:
        last = _LAST_INTEGER if up_to is None else up_to
        with reading(self._path) as db:
            found = db.execute(_ROWS, (self._workload_id, after, last, most)).fetchall()
        try:
            with _uncollected():
                return _of_file(found)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"store {self._path} is damaged: a trial between rows {found[0][0]} and "
                f"{found[-1][0]} is not valid ({error}); restore the store from a backup, or "
                "remove the kernel's results with 'whet store gc --kernel NAME'"
            ) from error

    def mark_at(self, row: int) -> int | None:
        with reading(self._path) as db:
            found = db.execute(_MARK, (self._workload_id, row)).fetchone()
        return None if found is None else int(found[0])

    def trial(self, mark: int) -> Trial | None:
        with reading(self._path) as db:
            row = db.execute(_TRIAL, (self._workload_id, mark)).fetchone()
        return None if row is None else trial_of(row, self._workload_id, str(self._path))


class _ListScan:
    def __init__(self, store: StoreReader, workload_id: str) -> None:
        self._store = store
        self._workload_id = workload_id

    def count(self, up_to: int | None = None) -> int:
        trials = len(self._store.trials(self._workload_id, all=True))
        return trials if up_to is None else min(trials, up_to)

    def mark_at(self, row: int) -> int | None:
        return row + 1 if row < self.count() else None

    def rows(self, after: int, most: int, up_to: int | None = None) -> TrialRows:
        every = self._store.trials(self._workload_id, all=True)[:up_to]
        found = every[after : after + most]
        return rows_of(found, range(after + 1, after + 1 + len(found)))

    def trial(self, mark: int) -> Trial | None:
        trials = self._store.trials(self._workload_id, all=True)
        return trials[mark - 1] if 0 < mark <= len(trials) else None


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of one's own to a store's file."""
    db, _ = connect(path, read_only=True, busy_s=_BUSY_S)
    with closing(db):
        try:
            yield db
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise store_error(path, error) from error


@contextmanager
def _uncollected() -> Iterator[None]:
    """Tens of thousands of dicts that are all kept: looking for garbage among them takes longer
    than making them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def rows_of(trials: Sequence[Trial], marks: Iterable[int] | None = None) -> TrialRows:
    """Trials that are in memory."""
    medians = [usable_median(trial) for trial in trials]
    intervals = [_interval(trial) for trial in trials]
    return TrialRows(
        marks=tuple(range(1, len(trials) + 1) if marks is None else marks),
        config_ids=[trial.config.id for trial in trials],
        statuses=[str(trial.status) for trial in trials],
        median_ns=np.array(medians, dtype=np.float64),
        low_ns=np.array([low for low, _ in intervals], dtype=np.float64),
        high_ns=np.array([high for _, high in intervals], dtype=np.float64),
        created=[trial.created for trial in trials],
        run_ids=[trial.run_id for trial in trials],
        values=values_of([trial.config for trial in trials]),
        cost_s=np.array([trial.cost.work_s for trial in trials], dtype=np.float64),
        build_s=np.array([trial.cost.work.get("build", np.nan) for trial in trials]),
        errors=[trial.error for trial in trials],
    )


def _interval(trial: Trial) -> tuple[float, float]:
    found = None if trial.timing is None else trial.timing.interval_ns
    return (np.nan, np.nan) if found is None else found


def _of_file(found: Sequence[tuple[Any, ...]]) -> TrialRows:
    columns = list(zip(*found, strict=True)) if found else [()] * 11
    marks, ids, statuses, medians, created, runs, configs, costs, timings, samples, errors = columns
    low, high = _intervals(samples)
    _put_foreign(timings, low, high)
    cost_s, build_s = _spent_of_texts(costs)
    return TrialRows(
        marks=marks,
        config_ids=ids,
        statuses=statuses,
        median_ns=np.array(medians, dtype=np.float64),
        low_ns=low,
        high_ns=high,
        created=created,
        run_ids=runs,
        values=_values_of_texts(configs),
        cost_s=cost_s,
        build_s=build_s,
        errors=errors,
    )


def values_of(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Parameter by parameter, in the order in which the configs name them."""
    names = dict.fromkeys(name for shape in dict.fromkeys(map(tuple, configs)) for name in shape)
    return {name: [config.get(name) for config in configs] for name in names}


class _Parts(dict[str, Any]):
    """`"BM":64` is 64, for one parameter; anything else raises ValueError."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __missing__(self, part: str) -> Any:
        found = json.loads(f"{{{part}}}")
        if list(found) != [self._name]:
            raise ValueError("another parameter")
        self[part] = found[self._name]
        return self[part]


def _values_of_texts(bodies: Sequence[str]) -> Mapping[str, Sequence[Any]]:
    """Configs of one kernel are alike: cut at the commas they consist of few parts, each of which
    is read once. Where that does not work out, they are read one by one."""
    if not bodies:
        return {}
    try:
        parts = zip(*[body[1:-1].split(",") for body in bodies], strict=True)
        names = list(json.loads(bodies[0]))
        return {
            name: list(map(_Parts(name).__getitem__, column))
            for name, column in zip(names, parts, strict=True)
        }
    except ValueError:
        return values_of(_objects(bodies))


def _spent_of_texts(bodies: Sequence[str]) -> tuple[Floats, Floats]:
    """The sums of all phases, and builds. Costs are all different, and reading them as JSON would
    take as long as all the rest; a phase is a name without a dot."""
    costs: list[float] = []
    builds: list[float] = []
    for body in bodies:
        if not body.startswith(_COST_BEGINS) or "\\" in body:
            return _spent(_objects(bodies))
        total, build = 0.0, math.nan
        for name, text in _PHASES(body, len(_COST_BEGINS), body.index("}")):
            seconds = float(text)
            total += seconds
            if name == "build":
                build = seconds
        costs.append(total)
        builds.append(build)
    return np.array(costs, dtype=np.float64), np.array(builds, dtype=np.float64)


def _spent(costs: Sequence[Mapping[str, Any]]) -> tuple[Floats, Floats]:
    ledgers = [Cost.from_json(cost) for cost in costs]
    return (
        np.array([cost.work_s for cost in ledgers], dtype=np.float64),
        np.array([cost.work.get("build", np.nan) for cost in ledgers], dtype=np.float64),
    )


def _objects(bodies: Sequence[str]) -> list[dict[str, Any]]:
    """Read in one go, which takes half as long as one by one."""
    parsed = json.loads(f"[{','.join(bodies)}]")
    if len(parsed) != len(bodies) or not all(type(one) is dict for one in parsed):
        raise ValueError("not a list of objects")
    return list(parsed)


def _intervals(samples: Sequence[bytes | None]) -> tuple[Floats, Floats]:
    """The intervals of the medians, those with the same number of samples at once."""
    sizes = np.array([0 if one is None else len(one) // 8 for one in samples], dtype=np.int64)
    low, high = np.full(len(samples), np.nan), np.full(len(samples), np.nan)
    for size in np.unique(sizes[sizes >= _FEWEST_SAMPLES]).tolist():
        rows = np.flatnonzero(sizes == size)
        packed = b"".join((samples[row] or b"")[: 8 * size] for row in rows.tolist())
        ordered = np.sort(np.frombuffer(packed, "<f8").reshape(len(rows), size), axis=1)
        ends = median_interval(range(size))
        assert ends is not None
        low[rows], high[rows] = ordered[:, int(ends[0])], ordered[:, int(ends[1])]
    return low, high


def _put_foreign(timings: Sequence[str | None], low: Floats, high: Floats) -> None:
    for row, timing in enumerate(timings):
        if timing is not None:
            with suppress(ValueError, LookupError, TypeError):
                foreign = json.loads(timing)["foreign"]
                low[row], high[row] = foreign["low_ns"], foreign["high_ns"]


FileState: TypeAlias = tuple[tuple[int, int] | None, ...]

_GROWN = """
SELECT w.id, count(*), max(t.n) FROM trials t JOIN workloads w ON w.n = t.workload
WHERE t.n > ? GROUP BY t.workload
"""
_TICK_NS = 50_000_000


class GrowthWatch:
    """Tells what was appended to a store since it was last asked, at next to no cost while nothing
    was: a file is looked at from outside."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._counts = {one.workload.id: one.trials for one in store.workloads()}
        self._file = Path(store.location) if _is_file(store) else None
        self._state = _written(store)
        self._settled = False
        self._last = self._last_trial()

    def changes(self) -> dict[str, int] | None:
        """By workload that grew, how many trials it has now; None where nothing has changed. Empty
        where it was not trials that changed."""
        state = _written(self._store)
        if state is not None and state == self._state and self._settled:
            return None
        changed, self._state = state != self._state, state
        self._settled = state is None or _is_settled(state)
        grown = self._grown()
        self._counts.update(grown)
        return grown or ({} if changed else None)

    def _grown(self) -> dict[str, int]:
        if self._file is None:
            now = {one.workload.id: one.trials for one in self._store.workloads()}
            return {id: n for id, n in now.items() if n != self._counts.get(id, 0)}
        with reading(self._file) as db:
            rows = db.execute(_GROWN, (self._last,)).fetchall()
        self._last = max((last for _, _, last in rows), default=self._last)
        return {id: self._counts.get(id, 0) + added for id, added, _ in rows}

    def _last_trial(self) -> int:
        if self._file is None:
            return 0
        with reading(self._file) as db:
            return int(db.execute(LITE.LAST_TRIAL).fetchone()[0])


def file_state(store: StoreReader) -> FileState | None:
    """The same as long as nobody has written to the store; None where that cannot be told."""
    state = _written(store)
    return state if state is not None and _is_settled(state) else None


def _written(store: StoreReader) -> FileState | None:
    """When its files were last written, and how long they are; None for what is not a file."""
    if not _is_file(store):
        return None
    return tuple(_state_of(f"{store.location}{suffix}") for suffix in ("", "-wal"))


def _is_file(store: StoreReader) -> bool:
    """A bundle under one's own store does not change."""
    own = store.layers[0] if isinstance(store, OverlayStore) else store
    return isinstance(own, SqliteStore)


def _is_settled(state: FileState) -> bool:
    """Clocks of file systems tick slowly: more may be written within the tick of the last write,
    and nothing would tell."""
    newest = max((one[0] for one in state if one is not None), default=0)
    return time.time_ns() - newest > _TICK_NS


def _state_of(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size

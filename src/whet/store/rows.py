"""Nouns to rows and back. JSON for what is only ever read whole, columns for what is searched."""

from __future__ import annotations

import json
import logging
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from whet.core.config import Config, frozen_values
from whet.core.errors import StoreError, WhetError
from whet.core.frozen import FrozenMap
from whet.core.run import Run
from whet.core.status import Limit, Status
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.core.workload import Workload

if TYPE_CHECKING:
    from whet.core.miss import Miss
    from whet.core.process import Mark
    from whet.core.timeline import Timeline

Row = tuple[Any, ...]
T = TypeVar("T")

TRIAL_FIELDS = (
    *("id", "workload_id", "config_id", "status", "median_ns", "created", "run_id"),
    *("config", "cost", "facts", "limit", "timing", "samples", "error"),
)

logger = logging.getLogger("whet")

# Nothing runs in a millionth of a nanosecond, and nobody waits for thirty years.
_SHORTEST_NS, _LONGEST_NS = 1e-6, 1e18

_dump = json.JSONEncoder(separators=(",", ":")).encode
_scan = json.JSONDecoder().raw_decode


def _load(body: str) -> Any:
    """As `json.loads` of what `_dump` wrote, which has no space around it to look for."""
    value, end = _scan(body)
    if end != len(body):
        raise ValueError("there is text after its JSON")
    return value


def usable_median(trial: Trial) -> float | None:
    """The median a trial can be ranked by: None without samples, and for what is no time."""
    median = trial.median_ns
    if median is None or not _SHORTEST_NS < median < _LONGEST_NS:
        return None
    return float(median)


def trial_values(trial: Trial) -> Row:
    """In the order of `TRIAL_FIELDS`."""
    timing, limit = trial.timing, trial.limit
    samples = () if timing is None else timing.samples
    return (
        trial.id,
        trial.workload_id,
        trial.config.id,
        str(trial.status),
        usable_median(trial),
        trial.created,
        trial.run_id,
        _dump(dict(trial.config)),  # in the author's order, unlike the canonical form
        _dump(trial.cost.to_json()),
        _dump(dict(trial.facts)),
        None if limit is None else _dump(limit.to_json()),
        None if timing is None else _dump(timing.meta_json()),
        None if timing is None else struct.pack(f"<{len(samples)}d", *samples),
        storable(trial.error),
    )


def trial_of(row: Row, workload_id: str, location: str) -> Trial:
    """From the columns that every query for trials selects.

    A row that cannot be read raises: to leave it out could silently change which config is best.
    """
    n, id_, status, created, run_id, config, cost, facts, limit, timing, samples, error = row[:12]
    try:
        if not type(id_) is type(run_id) is type(error) is str or type(created) is not float:
            raise ValueError("a column has the wrong type")
        trial = Trial(
            workload_id=workload_id,
            config=_config(config),
            status=Status(status),
            timing=None if timing is None else _timing(timing, samples),
            cost=Cost.from_json(_load(cost)),
            facts=_facts(facts),
            error=error,
            limit=None if limit is None else Limit.from_json(_load(limit)),
            run_id=run_id,
            created=created,
            id=id_,
        )
        _check_copies(trial, *row[12:])
        return trial
    except UNREADABLE as reason:
        raise bad_row("trial", n, location, reason) from reason


@lru_cache(maxsize=4096)
def _config(body: str) -> Config:
    """A space has far fewer configs than a store has rows, and each knows its id once asked."""
    values = _load(body)
    if type(values) is not dict:
        raise ValueError("a config is not an object")
    return Config(values)


@lru_cache(maxsize=4096)
def _facts(body: str) -> FrozenMap[Any]:
    return frozen_values(_load(body))


def _check_copies(trial: Trial, config_id: str, median_ns: float | None) -> None:
    """What is searched by is kept twice, so that damage to either shows."""
    if trial.config.id != config_id:
        raise ValueError(f"the config is not {config_id}")
    if usable_median(trial) != median_ns:
        raise ValueError(f"the median is not {median_ns}")


def workload_of(row: Row, location: str) -> Workload:
    """From its number and body, and its id where others could have changed the body."""
    n, body, *id_ = row
    with _reading("workload", n, location):
        found = Workload.from_json(_load(body))
        if id_ and id_ != [found.id]:
            raise ValueError(f"its id is not {id_[0]}")
        return found


def workload_body(workload: Workload) -> str:
    return _dump(workload.to_json())


def run_body(run: Run) -> str:
    """All but the workload, which has its own row."""
    return _dump({**run.to_json(), "workload": None})


def run_of(n: int, body: str, workload: Workload, location: str) -> Run:
    with _reading("run", n, location):
        run = Run.from_json({**_load(body), "workload": workload.to_json()})
        return replace(run, workload=workload)


def runs_of(rows: Sequence[Row], location: str) -> list[Run]:
    """From the columns that every query for runs selects."""
    workloads: dict[int, Workload] = {}
    runs = []
    for n, body, *workload in rows:
        if workload[0] not in workloads:
            workloads[workload[0]] = workload_of(tuple(workload), location)
        runs.append(run_of(n, body, workloads[workload[0]], location))
    return runs


def in_its_place(run: Run, row: Row, location: str) -> Run:
    """The run as it is to be kept over what `RUN` selects of it: how it came into the store does
    not change."""
    n, body = row[:2]
    with _reading("run", n, location):
        data = _load(body)
        return replace(run, after=tuple(data.get("after", ())), taken=data.get("taken") is True)


def timeline_of(row: Row, location: str) -> Timeline:
    from whet.core.timeline import Timeline

    n, body = row
    with _reading("timeline", n, location):
        return Timeline.from_packed(body)


def miss_values(miss: Miss) -> dict[str, Any]:
    """The parameters of `MISS`, but for the writer."""
    workload = miss.workload
    body = _dump(miss.to_json())
    return {"workload": workload.id, "kernel": workload.kernel, "at": miss.at, "body": body}


def miss_of(row: Row, location: str) -> Miss:
    from whet.core.miss import Miss

    n, body = row
    with _reading("missed", n, location):
        return Miss.from_json(_load(body))


def mark_values(mark: Mark) -> dict[str, Any]:
    """The parameters of `PUT_MARK`."""
    return {"run": mark.run_id, "workload": mark.workload_id, "body": _dump(mark.to_json())}


def mark_of(row: Row, location: str) -> Mark:
    from whet.core.process import Mark

    n, body = row
    with _reading("marks", n, location):
        return Mark.from_json(_load(body))


UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    struct.error,
    WhetError,
)


@contextmanager
def _reading(table: str, n: int, location: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as reason:
        raise bad_row(table, n, location, reason) from reason


def bad_row(table: str, n: int, location: str, reason: Exception) -> StoreError:
    return StoreError(
        f"store {location} is damaged: {table} row {n} is not valid ({type(reason).__name__}: "
        f"{reason}); restore the store from a backup, or remove the kernel's results with "
        "'whet store gc --kernel NAME'"
    )


def _timing(meta: str, samples: bytes) -> Timing:
    return Timing.from_json(_meta(meta), struct.unpack(f"<{len(samples) // 8}d", samples))


@lru_cache(maxsize=256)
def _meta(body: str) -> Any:
    """Nobody changes what is read here, so that all rows that say the same may share it."""
    return _load(body)


def storable(text: str) -> str:
    """A compiler's output may hold bytes that were never text; SQLite takes valid UTF-8 only."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


# Who asks for a workload's trials soon asks again, and what a row says never changes.
_read_trial = lru_cache(maxsize=512)(trial_of)


class RowReader:
    """Reads rows of a store of one's own: what cannot be read raises `StoreError`."""

    def __init__(self, location: str) -> None:
        self.location = location

    def each(self, rows: Iterable[Row], noun: Callable[[Row, str], T]) -> list[T]:
        """`noun` makes one of a row and the store's location, or raises `StoreError`."""
        return [noun(row, self.location) for row in rows]

    def one(self, row: Row | None, noun: Callable[[Row, str], T]) -> T | None:
        found = () if row is None else self.each([row], noun)
        return found[0] if found else None

    def trial_from(self, row: Row, workload_id: str) -> Trial:
        return trial_of(row, workload_id, self.location)

    def trials(self, rows: Iterable[Row], workload_id: str) -> list[Trial]:
        return [_read_trial(row, workload_id, self.location) for row in rows]

    def workload_from(self, row: Row, location: str) -> Workload:
        return workload_of(row[:2], location)

    def runs(self, rows: Sequence[Row]) -> list[Run]:
        return runs_of(rows, self.location)


class TolerantReader(RowReader):
    """Reads rows that many have written: what one of them wrote must not stop the others. A row
    that cannot be read is left out, and the log names it, once. `left_out` has all such lines."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.left_out: dict[str, None] = {}

    def leave_out(self, line: str) -> None:
        if line not in self.left_out:
            self.left_out[line] = None
            logger.warning("left out: %s", line)

    def each(self, rows: Iterable[Row], noun: Callable[[Row, str], T]) -> list[T]:
        found = []
        for row in rows:
            try:
                found.append(noun(row, self.location))
            except StoreError as error:
                self.leave_out(str(error))
        return found

    def trial_from(self, row: Row, workload_id: str) -> Trial:
        """On a server errors are bytes, and a number may be none."""
        if not math.isfinite(row[3]):
            reason = ValueError(f"it was created at {row[3]}")
            raise bad_row("trial", row[0], self.location, reason)
        error = bytes(row[11]).decode(errors="backslashreplace")
        return trial_of((*row[:11], error, *row[12:]), workload_id, self.location)

    def trials(self, rows: Iterable[Row], workload_id: str) -> list[Trial]:
        return self.each(rows, lambda row, _: self.trial_from(row, workload_id))

    def workload_from(self, row: Row, location: str) -> Workload:
        return workload_of(row[:3], location)

    def runs(self, rows: Iterable[Row]) -> list[Run]:
        return self.each(rows, lambda row, location: runs_of([row], location)[0])

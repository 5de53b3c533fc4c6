"""A table from its JSON, and from no JSON that is not one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from whet.core.config import Config, freeze_value, frozen_values
from whet.core.errors import SpaceError, UsageError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import L2, Quality
from whet.core.workload import Device
from whet.replay.declared import Declared
from whet.replay.encoding import FORMAT, UNKNOWN, UNTRIED, VERSION
from whet.replay.table import TICKS_PER_S, Build, Table, TableOrigin, TableWorkload, first_line
from whet.replay.visits import LONGEST_NS, Integers, Visits


class TableError(UsageError):
    """A file that is no table, or no longer one."""


def table_from_json(data: Any) -> Table:
    """Raises `TableError` for what is wrong; the message says what, the caller knows where."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise TableError(f"its format is not '{FORMAT}'")
    version = data.get("v")
    if type(version) is not int or version < 1:
        raise TableError(f"its version is {version!r}, which is not a version number")
    if version > VERSION:
        raise TableError(
            f"its version is {version}, but this whet reads up to {VERSION}; update whet"
        )
    try:
        return _table(data)
    except KeyError as error:
        raise TableError(f"it has no {error}") from None
    except RecursionError:
        raise TableError("it is nested too deeply") from None
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError, SpaceError) as error:
        raise TableError(f"it is inconsistent: {first_line(str(error))}") from None


def _table(data: Mapping[str, Any]) -> Table:
    legend = [Status(name) for name in data["statuses"]]
    if len(legend) > 10:
        raise ValueError("it has more than ten statuses")
    configs = _configs(data["configs"], len(_text(data["builds"]["status"])))
    declared = None if data["space"] is None else Declared.from_json(data["space"])
    if declared is not None:
        _refuse_strangers(configs, declared)
    return Table(
        kernel=_text(data["kernel"]),
        fingerprint=_text(data["fingerprint"]),
        device=Device.from_json(data["device"]),
        configs=configs,
        builds=_builds(data["builds"], legend, len(configs)),
        workloads=tuple(_workload(one, legend) for one in data["workloads"]),
        toolchain=FrozenMap({name: _text(value) for name, value in data["toolchain"].items()}),
        origin=_origin(data["origin"]),
        declared=declared,
    )


def _refuse_strangers(configs: Sequence[Config], declared: Declared) -> None:
    """A best that no search could ask for would make every search look bad."""
    space = declared.space()
    for config in configs:
        if reason := space.explain(config):
            raise ValueError(f"config {config} is not in its space: {reason}")


def _origin(data: Mapping[str, Any]) -> TableOrigin:
    if data["l2"] not in get_args(L2):
        raise ValueError(f"the state of the L2 cache is {data['l2']!r}")
    return TableOrigin(**{name: _text(value) for name, value in data.items()})  # type: ignore[arg-type]


def _configs(data: Mapping[str, Any], count: int) -> tuple[Config, ...]:
    names = [_text(name) for name in data["names"]]
    values = [[freeze_value(value) for value in listed] for listed in data["values"]]
    columns = [_column(column, count) for column in data["columns"]]
    if not len(names) == len(set(names)) == len(values) == len(columns):
        raise ValueError("the parameters' names, values and columns do not match")
    for name, offered, column in zip(names, values, columns, strict=True):
        if column and max(column) >= len(offered):
            raise ValueError(f"a config has a value for '{name}' that is not listed")
    return tuple(
        Config.from_frozen(
            {
                name: offered[at]
                for name, offered, at in zip(names, values, row, strict=True)
                if at != UNKNOWN
            }
        )
        for row in (zip(*columns, strict=True) if columns else [()] * count)
    )


def _builds(data: Mapping[str, Any], legend: Sequence[Status], count: int) -> tuple[Build, ...]:
    statuses = _statuses(data["status"], legend)
    seconds = _column(data["seconds"], count)
    stages = {stage: _column(ticks, count) for stage, ticks in data["stages"].items()}
    facts = data["facts"]
    if len(statuses) != count or any(len(column) != count for column in facts.values()):
        raise ValueError("the numbers of builds and configs differ")
    errors = _by_index(data["errors"], count)
    builds = []
    for at, status in enumerate(statuses):
        if status is None:
            raise ValueError("a build has no status")
        builds.append(
            Build(
                status=status,
                seconds=_seconds(seconds[at]),
                stages=FrozenMap(
                    {
                        stage: ticks[at] / TICKS_PER_S
                        for stage, ticks in stages.items()
                        if ticks[at] != UNKNOWN
                    }
                ),
                error=_text(errors.get(str(at), "")),
                facts=frozen_values({fact: column[at] for fact, column in facts.items()}),
            )
        )
    return tuple(builds)


def _workload(data: Mapping[str, Any], legend: Sequence[Status]) -> TableWorkload:
    statuses = _statuses(data["status"], legend)
    count = len(statuses)
    qualities = _by_index(data["quality"], count)
    for quality in qualities.values():
        if quality not in get_args(Quality):
            raise ValueError(f"a timing's quality is {quality!r}")
    first = data["first_ns"]
    return TableWorkload(
        key=frozen_values(data["key"]),
        statuses=statuses,
        visits=_visits(data["visits"], data["samples"]),
        qualities=FrozenMap(qualities),
        first=tuple(_column(first, count)) if first else (),
        spent=FrozenMap(
            {phase: tuple(_column(ticks, count)) for phase, ticks in data["seconds"].items()}
        ),
        errors=FrozenMap(
            {at: _text(error) for at, error in _by_index(data["errors"], count).items()}
        ),
    )


def _visits(shape: Sequence[Sequence[int]], samples: Sequence[int]) -> Visits:
    counts = _integers([len(sizes) for sizes in shape])
    sizes = _integers([size for config in shape for size in config])
    flat = _integers(samples)
    if flat.size and not -LONGEST_NS <= flat.min() <= flat.max() <= LONGEST_NS:
        raise ValueError("a sample is implausibly long")
    if sizes.size and sizes.min() < 1:
        raise ValueError("a visit has no samples")
    taken = [sum(config) for config in shape if config]
    if sum(taken) != len(flat):
        raise ValueError("the samples do not match their visits")
    first = np.concatenate([[0], np.cumsum(taken[:-1], dtype=np.int64)]) if taken else flat[:0]
    base = np.repeat(flat[first], taken)
    base[first] = 0
    return Visits(flat + base, sizes, counts)


def _statuses(text: Any, legend: Sequence[Status]) -> tuple[Status | None, ...]:
    meaning: dict[str, Status | None] = {str(at): status for at, status in enumerate(legend)}
    meaning[UNTRIED] = None
    unknown = set(_text(text)) - set(meaning)
    if unknown:
        raise ValueError(f"a status is {min(unknown)!r}, which is not in the legend")
    return tuple(meaning[digit] for digit in text)


def _by_index(data: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Its keys are indices of configs, written as text."""
    for at in data:
        if not (at.isascii() and at.isdigit() and str(int(at)) == at and int(at) < count):
            raise ValueError(f"there is no config number '{at}'")
    return dict(data)


def _column(values: Any, count: int) -> list[int]:
    column = _integers(values)
    if len(column) != count:
        raise ValueError(f"a column has {len(column)} entries for {count} configs")
    if column.size and column.min() < UNKNOWN:
        raise ValueError(f"a column has a value below {UNKNOWN}")
    listed: list[int] = column.tolist()
    return listed


def _integers(values: Any) -> Integers:
    """Refuses what NumPy would silently turn into integers: fractions, text, nested lists."""
    if not isinstance(values, list):
        raise TypeError("a column is not a list")
    array = np.array(values) if values else np.zeros(0, dtype=np.int64)
    if array.dtype.kind != "i" or array.ndim != 1:
        raise ValueError("a column is not a list of whole numbers")
    return array.astype(np.int64)


def _seconds(ticks: int) -> float | None:
    return None if ticks == UNKNOWN else ticks / TICKS_PER_S


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string"[:200])
    return value

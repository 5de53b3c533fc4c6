"""Tables as files: gzip of JSON, the same bytes for the same table.

Version 1 is one object whose first two members are `format` and `v`, in the columns and differences
that compress well:

- `configs`: the parameters' `names`, the `values` of each, and for each one column with every
  config's position among these values, -1 where a config does without the parameter.
- `space`: the declared parameters and constraints; null where the configs are the space.
- `statuses`: the legend. A column of statuses is a string with one digit a config, its position in
  the legend, and `-` where a config was never tried.
- `builds`: columns by config. Seconds are in units of 0.1 ms, -1 for unknown; `errors` has the
  failed ones by index; a fact is null where a config has none.
- `workloads`: for each its key and columns by config. `visits` has the number of samples in each
  visit; `samples` the samples of one config after the other in nanoseconds, the first as it is and
  the others as differences from that one.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from whet.core.config import Config, freeze_value, frozen_values
from whet.core.errors import SpaceError, UsageError, did_you_mean
from whet.core.files import write_whole
from whet.core.frozen import FrozenMap
from whet.core.space import read_parameters
from whet.core.status import Status
from whet.core.timing import L2, Quality
from whet.core.workload import Device
from whet.replay.table import (
    LONGEST_NS,
    TICKS_PER_S,
    Build,
    Declared,
    Integers,
    Table,
    TableOrigin,
    TableWorkload,
    Visits,
    first_line,
)

SUFFIX = ".whet.json.gz"
SHIPPED = Path(__file__).parent / "tables"

# Far above any table, far below what would take a machine down.
LARGEST_BYTES = 1 << 30

_GZIP = b"\x1f\x8b"
# No name, no time, best compression, no particular system.
_GZIP_HEADER = _GZIP + b"\x08\x00\x00\x00\x00\x00\x02\xff"

FORMAT = "whet-table"
VERSION = 1
UNKNOWN = -1
UNTRIED = "-"


@dataclass(frozen=True)
class FileContent:
    """What a file holds. `whole` is False for a gzip that ends too soon."""

    path: Path
    data: bytes
    whole: bool


def shipped() -> tuple[str, ...]:
    """The names of the tables that come with whet."""
    return tuple(sorted(path.name.removesuffix(SUFFIX) for path in SHIPPED.glob(f"*{SUFFIX}")))


def locate(path_or_name: str | os.PathLike[str]) -> Path:
    """The file of a path, or of the name of a shipped table."""
    path = Path(path_or_name)
    if os.path.isfile(path):  # not Path.is_file, which raises for a name that is too long
        return path
    if os.path.exists(path):
        raise TableError(f"{path} is not a file; name a table file")
    name = str(path_or_name).removesuffix(SUFFIX)
    if name in shipped():
        return SHIPPED / f"{name}{SUFFIX}"
    raise TableError(f"no such table: '{path_or_name}'{did_you_mean(name, shipped())}")


def write_table(table: Table, path: str | os.PathLike[str]) -> None:
    """Puts the file in place as a whole, or leaves what was there."""
    target = Path(path)
    if not target.name.endswith(SUFFIX):
        raise UsageError(f"{target} must end in {SUFFIX}")
    packed = table_bytes(table)
    try:
        write_whole(target, packed)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from None


def table_bytes(table: Table) -> bytes:
    text = json.dumps(table_json(table), separators=(",", ":"), allow_nan=False)
    data = text.encode()
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    body = deflate.compress(data) + deflate.flush()
    return _GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def unpack(path: Path) -> FileContent:
    """A file's bytes, unzipped where they are zipped; as far as they go where they are damaged."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise TableError(
                f"{path} is larger than {LARGEST_BYTES >> 20} MiB, the limit for tables"
            )
        packed = path.read_bytes()
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror or error}") from None
    if not packed.startswith(_GZIP):
        return FileContent(path, packed, whole=True)
    parts: list[bytes] = []
    size = 0
    while packed.startswith(_GZIP):
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            part = inflate.decompress(packed, LARGEST_BYTES - size + 1)
        except zlib.error:
            return FileContent(path, b"".join(parts) + _salvaged(packed), whole=False)
        parts.append(part)
        size += len(part)
        if size > LARGEST_BYTES:
            raise TableError(
                f"{path} decompresses to more than {LARGEST_BYTES >> 20} MiB, the limit for tables"
            )
        if not inflate.eof:
            return FileContent(path, b"".join(parts), whole=False)
        packed = inflate.unused_data
    return FileContent(path, b"".join(parts), whole=not packed.strip(b"\0"))


def is_ours(file: FileContent) -> bool:
    return f'"{FORMAT}"'.encode() in file.data[:100]


def parse_table(file: FileContent) -> Table:
    """Only whole files: a table is measured once and read often, so that half of one misleads."""
    if not file.whole:
        raise TableError(f"{file.path} is damaged or truncated; copy or record it again")
    try:
        data: Any = json.loads(file.data)
    except (ValueError, RecursionError):
        raise TableError(f"{file.path} is not a table: not valid JSON") from None
    try:
        return table_from_json(data)
    except TableError as error:
        raise TableError(f"{file.path} is not a table: {error}") from None


def _salvaged(packed: bytes) -> bytes:
    """What comes out of a damaged gzip before the damage."""
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    parts: list[bytes] = []
    size = 0
    for at in range(0, len(packed), 1024):
        try:
            part = inflate.decompress(packed[at : at + 1024])
        except zlib.error:
            break
        parts.append(part)
        size += len(part)
        if size > LARGEST_BYTES:
            break
    return b"".join(parts)


def table_json(table: Table) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "v": VERSION,
        "kernel": table.kernel,
        "fingerprint": table.fingerprint,
        "device": table.device.to_json(),
        "toolchain": _sorted(table.toolchain),
        "origin": asdict(table.origin),
        "space": None if table.declared is None else table.declared.to_json(),
        "configs": _configs_json(table.configs),
        "statuses": [str(status) for status in Status],
        "builds": _builds_json(table.builds),
        "workloads": [_workload_json(workload) for workload in table.workloads],
    }


def _configs_json(configs: Sequence[Config]) -> dict[str, Any]:
    parameters = read_parameters(configs)
    return {
        "names": [parameter.name for parameter in parameters],
        "values": [list(parameter.values) for parameter in parameters],
        "columns": [
            [
                parameter.position(config[parameter.name]) if parameter.name in config else UNKNOWN
                for config in configs
            ]
            for parameter in parameters
        ],
    }


def _builds_json(builds: Sequence[Build]) -> dict[str, Any]:
    stages = sorted({stage for build in builds for stage in build.stages})
    facts = sorted({fact for build in builds for fact in build.facts})
    return {
        "status": _statuses_text([build.status for build in builds]),
        "seconds": [_ticks(build.seconds) for build in builds],
        "stages": {
            stage: [_ticks(build.stages.get(stage)) for build in builds] for stage in stages
        },
        "errors": {str(at): build.error for at, build in enumerate(builds) if build.error},
        "facts": {fact: [build.facts.get(fact) for build in builds] for fact in facts},
    }


def _workload_json(workload: TableWorkload) -> dict[str, Any]:
    return {
        "key": _sorted(workload.key),
        "status": _statuses_text(workload.statuses),
        "visits": _visits_json(workload.visits),
        "samples": _differences(workload.visits),
        "quality": _by_index(workload.qualities),
        "first_ns": list(workload.first),
        "seconds": {phase: list(ticks) for phase, ticks in _sorted(workload.spent).items()},
        "errors": _by_index(workload.errors),
    }


def _visits_json(visits: Visits) -> list[list[int]]:
    sizes = iter(visits.sizes.tolist())
    return [[next(sizes) for _ in range(count)] for count in visits.counts.tolist()]


def _differences(visits: Visits) -> list[int]:
    starts = visits.starts
    first = starts[:-1][visits.counts > 0]
    taken = np.diff(starts)[visits.counts > 0]
    differences = visits.flat - np.repeat(visits.flat[first], taken)
    differences[first] = visits.flat[first]
    listed: list[int] = differences.tolist()
    return listed


def _statuses_text(statuses: Sequence[Status | None]) -> str:
    digits = {status: str(at) for at, status in enumerate(Status)}
    return "".join(UNTRIED if status is None else digits[status] for status in statuses)


def _ticks(seconds: float | None) -> int:
    return UNKNOWN if seconds is None else round(seconds * TICKS_PER_S)


def _by_index(items: Mapping[str, Any]) -> dict[str, Any]:
    return {at: items[at] for at in sorted(items, key=int)}


def _sorted(items: Mapping[str, Any]) -> dict[str, Any]:
    return {name: items[name] for name in sorted(items)}


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
    errors = _indexed(data["errors"], count)
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
    qualities = _indexed(data["quality"], count)
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
            {at: _text(error) for at, error in _indexed(data["errors"], count).items()}
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


def _indexed(data: Mapping[str, Any], count: int) -> dict[str, Any]:
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

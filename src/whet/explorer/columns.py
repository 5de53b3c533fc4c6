"""`TrialColumns`: a workload's trials as arrays, and how they travel."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from whet.core.status import Status
from whet.store.scanning import TrialRows

Kind = Literal["int", "float", "str", "bool"]

# Beyond this JavaScript's numbers are no longer exact.
_LARGEST_NUMBER = 1 << 53

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.uint32]

_HEX_DIGITS = 16
_FEWEST_UNSORTED = 20_000

# The last one is that of a table's config which was never tried on the key.
UNTRIED = "untried"
STATUSES = (*map(str, Status), UNTRIED)
_WORKED = frozenset(str(status) for status in Status if status.measured)
MEASURED = tuple(STATUSES.index(str(status)) for status in Status if status.measured)

LONGEST_ERROR = 300
_FEWEST_IN_CHUNK = 2_000
_MOST_ERRORS = 65_535
_OTHER_ERRORS = "(further errors; see the trial)"
_PARAMETER = "p:"
_ALIGNMENT = 8
_LENGTH = struct.Struct("<I")
_DTYPES = {
    np.dtype(kind).name: name
    for kind, name in (
        (np.uint8, "u8"),
        (np.uint16, "u16"),
        (np.uint32, "u32"),
        (np.float32, "f32"),
        (np.float64, "f64"),
    )
}


class _NextCodes(dict[Any, int]):
    """Gives whatever is asked for the next free code."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__()
        self._values = values

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self._values)
        self._values.append(value)
        return code


class ValueCodes:
    """1, 1.0 and True are different values, as they are in configs."""

    def __init__(self, values: Sequence[Any] = ()) -> None:
        self.values: list[Any] = []
        self._by_type: dict[type, _NextCodes] = {}
        for value in values:
            self.code(value)

    def copy(self) -> ValueCodes:
        return ValueCodes(self.values)

    def code(self, value: Any) -> int:
        return self._places(type(value))[_hashable(value)]

    def codes(self, column: Sequence[Any]) -> Array:
        types = set(map(type, column))
        if len(types) == 1 and (only := types.pop()) is not list:
            places = self._places(only)
            found = np.fromiter(map(places.__getitem__, column), np.uint32, len(column))
        else:
            found = np.fromiter(map(self.code, column), np.uint32, len(column))
        return found.astype(smallest(len(self.values)))

    def _places(self, kind: type) -> _NextCodes:
        kind = tuple if kind is list else kind
        if kind not in self._by_type:
            self._by_type[kind] = _NextCodes(self.values)
        return self._by_type[kind]

    @property
    def kind(self) -> Kind:
        known = [value for value in self.values if value is not None]
        types = set(map(type, known))
        if types == {bool}:
            return "bool"
        if types and types <= {int, float} and all(map(_exact, known)):
            return "int" if types == {int} else "float"
        return "str"

    def order(self) -> list[int]:
        """The codes in the order in which a person would list them."""
        places = range(len(self.values))
        if self.kind == "str":
            return list(places)
        known = [code for code in places if self.values[code] is not None]
        return [
            *sorted(known, key=lambda code: self.values[code]),
            *(code for code in places if self.values[code] is None),
        ]

    def ranks(self) -> Array:
        """By code, its place in `order`."""
        order = self.order()
        ranks = np.zeros(len(order), dtype=smallest(len(order)))
        ranks[order] = np.arange(len(order))
        return ranks

    def shown(self) -> list[Any]:
        """The values in their order, as JSON has them."""
        return [_json(self.values[code]) for code in self.order()]


def smallest(count: int) -> type[np.unsignedinteger[Any]]:
    """The smallest kind of code that tells so many values apart."""
    return np.uint8 if count <= 1 << 8 else np.uint16 if count <= 1 << 16 else np.uint32


def value_text(value: Any) -> str:
    """`(1, 2)` is `1,2`, as in a config that is printed."""
    if isinstance(value, list | tuple):
        return ",".join(map(value_text, value))
    return str(value)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _exact(value: Any) -> bool:
    return bool(abs(value) <= _LARGEST_NUMBER)


def _json(value: Any) -> Any:
    if value is None or type(value) is bool or (type(value) in (int, float) and _exact(value)):
        return value
    return value_text(value)


def numbers_of(config_ids: Sequence[str]) -> Ids:
    """Ids are 16 hexadecimal digits; any other text is hashed to as many."""
    try:
        packed = bytes.fromhex("".join(config_ids))
        if len(packed) == 8 * len(config_ids) and set(map(len, config_ids)) <= {_HEX_DIGITS}:
            return np.frombuffer(packed, ">u8").astype(np.uint64)
    except ValueError:
        pass
    return np.array([number_of(id) for id in config_ids], dtype=np.uint64)


def number_of(config_id: str) -> int:
    try:
        packed = bytes.fromhex(config_id)
    except ValueError:
        packed = b""
    if len(packed) != 8 or len(config_id) != _HEX_DIGITS:
        packed = blake2b(config_id.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(packed, "big")


class LatestRows:
    """Finds configs among millions of rows: most of them sorted, the newest in a dict."""

    def __init__(self) -> None:
        self._ids: Ids = np.zeros(0, dtype=np.uint64)
        self._rows: Rows = np.zeros(0, dtype=np.uint32)
        self._newest: dict[int, int] = {}
        self._unsorted: Ids | None = None
        self._count = 0

    @classmethod
    def of(cls, ids: Ids) -> LatestRows:
        """Sorted when the first one is added: whoever only looks need not wait for it."""
        found = cls()
        found._count = len(ids)
        found._unsorted = ids
        return found

    def find(self, number: int) -> int | None:
        """The latest row of a config."""
        if (row := self._newest.get(number)) is not None:
            return row
        if self._unsorted is not None:
            found = np.flatnonzero(self._unsorted == np.uint64(number))
            return int(found[-1]) if len(found) else None
        rows = self._sorted(np.array([number], dtype=np.uint64))
        return int(rows[0]) - 1 if rows[0] else None

    def add(self, ids: Ids) -> Rows:
        """Appends rows; for each, the number of the row it replaces plus one, 0 for none."""
        if self._unsorted is not None:
            known, self._unsorted = self._unsorted, None
            self._sort(known, np.arange(len(known), dtype=np.uint32))
        replaces = self._sorted(ids)
        newest = self._newest
        for at, number in enumerate(ids.tolist()):
            row = newest.get(number)
            if row is not None:
                replaces[at] = row + 1
            newest[number] = self._count + at
        self._count += len(ids)
        if len(newest) > max(_FEWEST_UNSORTED, len(self._ids)):
            self._sort(
                np.concatenate([self._ids, np.fromiter(newest, np.uint64, len(newest))]),
                np.concatenate([self._rows, np.fromiter(newest.values(), np.uint32, len(newest))]),
            )
            self._newest = {}
        return replaces

    def _sorted(self, ids: Ids) -> Rows:
        """Row plus one of each among those that are sorted."""
        found = np.zeros(len(ids), dtype=np.uint32)
        if len(self._ids):
            at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            same = self._ids[at] == ids
            found[same] = self._rows[at[same]] + 1
        return found

    def _sort(self, ids: Ids, rows: Rows) -> None:
        """Of the rows of one config only the latest is kept."""
        order = np.lexsort((rows, ids))
        ids, rows = ids[order], rows[order]
        last = np.append(ids[1:] != ids[:-1], True) if len(ids) else np.zeros(0, dtype=bool)
        self._ids, self._rows = ids[last], rows[last]


@dataclass(frozen=True)
class Remarkable:
    """The configs that a page points out, by id."""

    best: str | None = None
    first: str | None = None
    equals: tuple[str, ...] = ()


@dataclass
class TrialColumns:
    """Grows at the end. `marks` are what `TrialScan.trial` takes; `started` is when runs began."""

    started: Mapping[str, float] = field(default_factory=dict)
    rows: int = 0
    last_mark: int = 0
    parameters: dict[str, ValueCodes] = field(default_factory=dict)
    errors: ValueCodes = field(default_factory=lambda: ValueCodes([""]))
    runs: ValueCodes = field(default_factory=ValueCodes)
    chunks: list[dict[str, Array]] = field(default_factory=list)
    latest: LatestRows = field(default_factory=LatestRows)
    begun: dict[str, float] = field(default_factory=dict)

    def extend(self, rows: TrialRows) -> None:
        if not len(rows):
            return
        ids = numbers_of(rows.config_ids)
        chunk: dict[str, Array] = {
            "status": _status_codes(rows.statuses),
            "median_ns": rows.median_ns.astype(np.float32),
            "low_ns": rows.low_ns.astype(np.float32),
            "high_ns": rows.high_ns.astype(np.float32),
            "cost_s": rows.cost_s.astype(np.float32),
            "build_s": rows.build_s.astype(np.float32),
            "at_s": self._moments(rows),
            "error": self._error_codes(rows.statuses, rows.errors),
            "run": self.runs.codes(rows.run_ids),
            "replaces": self.latest.add(ids),
            "mark": np.array(rows.marks, dtype=np.int64),
            "id": ids,
        }
        for name in dict.fromkeys([*self.parameters, *rows.values]):
            if name not in self.parameters:  # those before have none
                self.parameters[name] = ValueCodes([None] if self.rows else [])
            column = rows.values.get(name) or [None] * len(rows)
            chunk[_PARAMETER + name] = self.parameters[name].codes(column)
        self._append(chunk)
        self.rows += len(rows)
        self.last_mark = rows.marks[-1]

    def _append(self, chunk: dict[str, Array]) -> None:
        """A run that is watched comes in a few rows at a time; thousands of chunks would make every
        look at them slow."""
        last = self.chunks[-1] if self.chunks else {}
        if last.keys() == chunk.keys() and len(last["id"]) < _FEWEST_IN_CHUNK:
            joined = {name: np.concatenate([last[name], part]) for name, part in chunk.items()}
            self.chunks[-1] = joined
        else:
            self.chunks.append(chunk)

    def absorb(self, later: TrialColumns) -> None:
        """Appends what somebody else has read of the rows that come next."""
        for chunk in later.chunks:
            joined = dict(chunk)
            for name, codes in later.parameters.items():
                if name not in self.parameters:
                    self.parameters[name] = ValueCodes([None] if self.rows else [])
                column = _PARAMETER + name
                joined[column] = _recoded(self.parameters[name], codes, chunk[column])
            joined["error"] = _recoded(self.errors, later.errors, chunk["error"])
            joined["run"] = _recoded(self.runs, later.runs, chunk["run"])
            joined["replaces"] = self.latest.add(chunk["id"])
            self.chunks.append(joined)
            self.rows += len(chunk["id"])
        self.begun = {**later.begun, **self.begun}
        self.last_mark = later.last_mark

    def snapshot(self) -> TrialColumns:
        """As it is now, whatever is appended meanwhile."""
        parameters = {name: codes.copy() for name, codes in self.parameters.items()}
        return replace(self, parameters=parameters, chunks=list(self.chunks))

    def column(self, name: str, first: int = 0) -> Array:
        """Of the rows from `first` on; a parameter as places in its list of values."""
        parts = list(self._parts(name, first))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint8)

    def standing(self) -> npt.NDArray[np.bool_]:
        """False for rows that a later one replaces."""
        found = np.ones(self.rows, dtype=bool)
        replaced = self.column("replaces")
        found[replaced[replaced > 0] - 1] = False
        return found

    def measured(self) -> npt.NDArray[np.bool_]:
        """True for rows of a config that works and has a time."""
        works = np.isin(self.column("status"), MEASURED)
        return np.asarray(works & (self.column("median_ns") > 0))

    def row_of(self, config_id: str | None) -> int | None:
        return None if config_id is None else self.latest.find(number_of(config_id))

    def rows_of_run(self, run_id: str) -> list[int]:
        """The rows that one run appended, in their order."""
        if run_id not in self.runs.values:
            return []
        code = self.runs.values.index(run_id)
        rows: list[int] = np.flatnonzero(self.column("run") == code).tolist()
        return rows

    def status_counts(self) -> dict[str, int]:
        counts = np.bincount(self.column("status")[self.standing()], minlength=len(STATUSES))
        return {name: int(n) for name, n in zip(STATUSES, counts, strict=True) if n}

    def encoded(
        self, first: int, total: int, complete: bool, epoch: str, pointed: Remarkable
    ) -> Iterator[bytes]:
        """The header and the arrays of the rows from `first` on."""
        first = min(max(first, 0), self.rows)
        names = [*(_PARAMETER + name for name in self.parameters), *_SENT]
        count, offset = self.rows - first, 0
        described = []
        for name in names:
            kind = self._dtype(name)
            described.append(
                {"name": name, "dtype": _DTYPES[kind.name], "offset": offset, "length": count}
            )
            offset = _aligned(offset + count * kind.itemsize)
        header = {
            "first": first,
            "rows": count,
            "total_rows": max(total, self.rows),
            "complete": complete,
            "epoch": epoch,
            "best_row": self.row_of(pointed.best),
            "first_row": self.row_of(pointed.first),
            "equal_rows": [row for id in pointed.equals if (row := self.row_of(id)) is not None],
            "parameters": [
                {"name": name, "values": codes.shown(), "kind": codes.kind}
                for name, codes in self.parameters.items()
            ],
            "statuses": list(STATUSES),
            "errors": self.errors.values,
            "runs": self.runs.values,
            "columns": described,
        }
        body = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
        start = _LENGTH.pack(len(body)) + body
        yield start.ljust(_aligned(len(start)), b" ")
        for name in names:
            yield from self._padded(name, first, count)

    def _padded(self, name: str, first: int, count: int) -> Iterator[bytes]:
        kind = self._dtype(name)
        for part in self._parts(name, first):
            yield part.astype(kind, copy=False).tobytes()
        size = count * kind.itemsize
        yield bytes(_aligned(size) - size)

    def stored(self, name: str) -> list[Array]:
        """A column as it is kept, in parts; a parameter as codes of its values."""
        parameter = self._parameter(name)
        found = []
        for chunk in self.chunks:
            part = chunk.get(name)
            if part is None:  # none of its configs has the parameter
                assert parameter is not None, name
                part = np.full(len(chunk["status"]), parameter.code(None), dtype=np.uint8)
            found.append(part)
        return found

    def _parts(self, name: str, first: int) -> Iterator[Array]:
        parameter = self._parameter(name)
        ranks = None if parameter is None else parameter.ranks()
        begin = 0
        for part in self.stored(name):
            if begin + len(part) > first:
                wanted = part[max(0, first - begin) :]
                yield wanted if ranks is None else ranks[wanted]
            begin += len(part)

    def _parameter(self, name: str) -> ValueCodes | None:
        if not name.startswith(_PARAMETER):
            return None
        return self.parameters.get(name.removeprefix(_PARAMETER))

    def _dtype(self, name: str) -> np.dtype[Any]:
        if name.startswith(_PARAMETER):
            return np.dtype(smallest(len(self.parameters[name.removeprefix(_PARAMETER)].values)))
        if name in ("error", "run"):
            many = len((self.errors if name == "error" else self.runs).values)
            return np.dtype(np.uint16 if many <= 1 << 16 else np.uint32)
        return np.dtype(_SENT[name])

    def _moments(self, rows: TrialRows) -> Array:
        for run, moment in zip(rows.run_ids, rows.created, strict=True):
            if run not in self.begun:
                self.begun[run] = self.started.get(run, moment)
        begun = [self.begun[run] for run in rows.run_ids]
        passed = np.array(rows.created) - np.array(begun)
        return np.asarray(np.maximum(passed, 0.0), dtype=np.float32)

    def _error_codes(self, statuses: Sequence[str], errors: Sequence[str]) -> Array:
        """Of what failed; that a config was outraced is no error, however it is put."""
        shown = [
            "" if not error or status in _WORKED else first_line(error)
            for status, error in zip(statuses, errors, strict=True)
        ]
        if len(self.errors.values) + len(set(shown)) > _MOST_ERRORS:
            known = set(self.errors.values)
            shown = [error if error in known else _OTHER_ERRORS for error in shown]
        return self.errors.codes(shown)


_SENT: dict[str, type[np.generic]] = {
    "status": np.uint8,
    "median_ns": np.float32,
    "low_ns": np.float32,
    "high_ns": np.float32,
    "cost_s": np.float32,
    "build_s": np.float32,
    "at_s": np.float32,
    "error": np.uint16,
    "run": np.uint16,
    "replaces": np.uint32,
}

_CODE_OF_STATUS = {status: code for code, status in enumerate(STATUSES)}


def _recoded(mine: ValueCodes, theirs: ValueCodes, column: Array) -> Array:
    found: Array = mine.codes(theirs.values)[column] if theirs.values else column
    return found


def _status_codes(statuses: Sequence[str]) -> Array:
    return np.fromiter(map(_CODE_OF_STATUS.__getitem__, statuses), np.uint8, len(statuses))


def first_line(text: str) -> str:
    """What there is to read of an error before one asks for the rest."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line[:LONGEST_ERROR]


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT

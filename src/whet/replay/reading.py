"""Tables by path or by name, whoever wrote them: whet, Kernel Tuner, or a tool that writes T4.

Other people's are read as far as they are sound: a tuner that is killed leaves its file without an
end.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from whet.core.config import Config, freeze_value
from whet.core.errors import SpaceError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.workload import Device
from whet.replay.files import FileContent, TableError, is_ours, locate, parse_table, unpack
from whet.replay.table import (
    LONGEST_NS,
    TICKS_PER_S,
    Build,
    Table,
    TableOrigin,
    TableWorkload,
    Visits,
    first_line,
)

_BLANKS = re.compile(r"[ \t\n\r]*")
_CLOSING = {"{": "}", "[": "]"}

NS_PER_MS = 1_000_000

# What Kernel Tuner once wrote for a config that failed.
FAILED_TIME = 1e20

_KERNEL_TUNER_STATUSES = {
    "InvalidConfig": Status.CONSTRAINT,
    "CompilationFailedConfig": Status.BUILD_ERROR,
    "RuntimeFailedConfig": Status.RUN_ERROR,
}

_T4_STATUSES = {
    "correct": Status.OK,
    "constraints": Status.CONSTRAINT,
    "compile": Status.BUILD_ERROR,
    "runtime": Status.RUN_ERROR,
    "timeout": Status.RUN_TIMEOUT,
    "correctness": Status.WRONG_RESULT,
}
_NS_PER_UNIT = {
    "seconds": 1_000_000_000,
    "milliseconds": NS_PER_MS,
    "miliseconds": NS_PER_MS,
    "microseconds": 1_000,
    "nanoseconds": 1,
}


def read_table(path_or_name: str | os.PathLike[str]) -> Table:
    """whet's own format, a Kernel Tuner cache or T4, zipped or not; or a shipped table's name.

    A `TableError` names the file and what is wrong with it. A foreign file that is cut off is read
    as far as it goes, which the table's `notes` then say.
    """
    file = unpack(locate(path_or_name))
    return parse_table(file) if is_ours(file) else _foreign_table(file)


def read_kernel_tuner(path: str | os.PathLike[str]) -> Table:
    """A Kernel Tuner cache: one workload, whose key is the problem size."""
    return _kernel_tuner_table(unpack(locate(Path(path))))


def read_t4(path: str | os.PathLike[str]) -> Table:
    """A T4 file: one workload. It names neither kernel nor device, so its file name has to."""
    return _t4_table(unpack(locate(Path(path))))


def _foreign_table(file: FileContent) -> Table:
    """Told apart by their contents: `cache` is Kernel Tuner's, `results` is T4's."""
    scanner = Scanner(file.data.decode(errors="replace"))
    try:
        for name in scanner.members():
            if name in ("cache", "results"):
                return _kernel_tuner_table(file) if name == "cache" else _t4_table(file)
            scanner.value()
    except CutOff:
        pass
    raise TableError(
        f"{file.path} is not a table (whet, Kernel Tuner or T4)"
        + ("" if file.whole else "; the file is damaged or truncated")
    )


class CutOff(Exception):
    """From here on the text is no JSON."""


class Scanner:
    """Goes through nested objects and arrays one level at a time, each value as it is wanted."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._decode = json.JSONDecoder().raw_decode

    def value(self) -> Any:
        self._peek()
        try:
            value, self._at = self._decode(self._text, self._at)
        except (ValueError, RecursionError):
            raise CutOff from None
        return value

    def members(self) -> Iterator[str]:
        """The names in an object, or empty texts in an array.

        Between two of them the caller must take what the name stands for, with `value` or with
        `members`.
        """
        opening = self._peek()
        if opening not in _CLOSING:
            raise CutOff
        self._at += 1
        if self._peek() == _CLOSING[opening]:
            self._at += 1
            return
        while True:
            yield self._name() if opening == "{" else ""
            mark = self._peek()
            self._at += 1
            if mark == _CLOSING[opening]:
                return
            if mark != ",":
                raise CutOff

    def _name(self) -> str:
        name = self.value()
        if not isinstance(name, str) or self._peek() != ":":
            raise CutOff
        self._at += 1
        return name

    def _peek(self) -> str:
        blanks = _BLANKS.match(self._text, self._at)
        assert blanks is not None
        self._at = blanks.end()
        return self._text[self._at : self._at + 1]


class Unusable(Exception):
    """A result from which no config can be read."""


class Rows:
    """Config after config, in arrays: there may be hundreds of thousands with 32 samples each."""

    def __init__(self, ns_per_unit: int = NS_PER_MS) -> None:
        self.ns_per_unit = ns_per_unit
        self.configs: dict[Config, None] = {}
        self.repeated = 0
        self.unusable = 0
        self.date = ""
        self._builds: list[Build] = []
        self._statuses: list[Status | None] = []
        self._flat = array("q")
        self._sizes = array("q")
        self._counts = array("q")
        self._spent: dict[str, array[int]] = {}
        self._errors: dict[str, str] = {}

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Counts a result that turns out to be none, and goes on."""
        try:
            yield
        except Unusable:
            self.unusable += 1

    def add(
        self,
        config: Config,
        status: Status,
        samples: Iterable[Any],
        build: Any,
        spent: Mapping[str, Any],
        error: str = "",
        when: Any = "",
    ) -> None:
        if config in self.configs:
            self.repeated += 1
            return
        ns = [round(sample * self.ns_per_unit) for sample in samples if is_time(sample)]
        kept = [sample for sample in ns if 0 < sample <= LONGEST_NS] if status.measured else []
        if status.measured and not kept:
            status, error = Status.RUN_ERROR, "it has no usable time"
        at = len(self.configs)
        self.configs[config] = None
        self._statuses.append(status)
        self._flat.extend(kept)
        self._counts.append(1 if kept else 0)
        if kept:
            self._sizes.append(len(kept))
        if error:
            self._errors[str(at)] = first_line(error)
        for phase, amount in spent.items():
            column = self._spent.setdefault(phase, array("q", [-1]) * at)
            column.append(self._ticks(amount))
        unbuilt = status in (Status.BUILD_ERROR, Status.CONSTRAINT)
        ticks = self._ticks(build)
        self._builds.append(
            Build(
                status=status if unbuilt else Status.OK,
                seconds=None if ticks < 0 else ticks / TICKS_PER_S,
                error=error if unbuilt else "",
            )
        )
        if isinstance(when, str):
            self.date = max(self.date, when[:10])

    def table(self, kernel: str, device: str, key: Mapping[str, Any], source: str) -> Table:
        workload = TableWorkload(
            key=FrozenMap(key),
            statuses=tuple(self._statuses),
            visits=Visits(*(np.array(one) for one in (self._flat, self._sizes, self._counts))),
            spent=FrozenMap({phase: tuple(ticks) for phase, ticks in self._spent.items()}),
            errors=FrozenMap(self._errors),
        )
        return Table(
            kernel=kernel,
            fingerprint="",
            device=Device.of_name(device),
            configs=tuple(self.configs),
            builds=tuple(self._builds),
            workloads=(workload,),
            origin=TableOrigin(date=self.date, source=source),
        )

    def _ticks(self, amount: Any) -> int:
        known = is_number(amount) and 0 <= amount * self.ns_per_unit <= LONGEST_NS
        return round(amount * self.ns_per_unit * TICKS_PER_S / 1e9) if known else -1


def read_config(values: Mapping[str, Any], names: Iterable[str]) -> Config:
    try:
        return Config({name: values[name] for name in names})
    except (KeyError, TypeError, SpaceError):
        raise Unusable from None


def named_by_file(file: FileContent) -> tuple[str, str]:
    """`convolution-RTX_3090.t4.json.gz` is of the convolution, on an RTX 3090."""
    kernel, _, device = file.path.name.partition(".")[0].partition("-")
    return kernel, device.replace("_", " ") or "unknown"


def reading_notes(rows: Rows, whole: bool) -> tuple[str, ...]:
    notes = []
    if not whole:
        notes.append(
            f"the file is truncated or damaged; read its first {len(rows.configs)} configs"
        )
    if rows.unusable:
        notes.append(f"skipped because they are not valid: {rows.unusable}")
    if rows.repeated:
        notes.append(f"skipped because their config was already listed: {rows.repeated}")
    return tuple(notes)


def is_time(value: Any) -> bool:
    return is_number(value) and value > 0


def is_number(value: Any) -> bool:
    """Of a size that can be reckoned with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e200


Add = Callable[[Rows, Any, Mapping[str, Any]], None]


def _scanned(file: FileContent, member: str, add: Add) -> tuple[Rows, dict[str, Any], bool]:
    """The results of `member`, all that stands beside it, and whether the file has its end."""
    scanner = Scanner(file.data.decode(errors="replace"))
    header: dict[str, Any] = {}
    rows, whole = Rows(), file.whole
    try:
        for name in scanner.members():
            if name == member:
                for _ in scanner.members():
                    entry = scanner.value()
                    with rows.reading():
                        add(rows, entry, header)
                continue
            header[name] = scanner.value()
            if name == "metadata" and member == "results":
                rows.ns_per_unit = _unit(header[name], rows, file)
    except CutOff:
        whole = False
    if not rows.configs:
        raise TableError(f"{file.path} has no complete result in '{member}'")
    return rows, header, whole


def _kernel_tuner_table(file: FileContent) -> Table:
    rows, header, whole = _scanned(file, "cache", _add_cached)
    named = named_by_file(file)
    table = rows.table(
        kernel=str(header.get("kernel_name") or named[0]),
        device=str(header.get("device_name") or named[1]),
        key=_problem(header.get("problem_size"), file),
        source="kernel-tuner",
    )
    return replace(table, notes=reading_notes(rows, whole))


def _add_cached(rows: Rows, entry: Any, header: Mapping[str, Any]) -> None:
    if not isinstance(entry, dict) or "time" not in entry:
        raise Unusable
    names = header.get("tune_params_keys") or _names_before_time(entry)
    time = entry["time"]
    times = entry.get("times") or [time]
    if isinstance(time, str):
        status, error = _KERNEL_TUNER_STATUSES.get(time, Status.RUN_ERROR), time
    elif is_time(time) and time < FAILED_TIME:
        status, error = Status.OK, ""
    else:
        status, error = Status.RUN_ERROR, f"its time is {time}"
    rows.add(
        read_config(entry, names),
        status,
        times if isinstance(times, list) else [time],
        entry.get("compile_time"),
        {
            "check": entry.get("verification_time"),
            "framework": entry.get("framework_time"),
            "measure": entry.get("benchmark_time"),
        },
        error,
        entry.get("timestamp"),
    )


def _names_before_time(entry: Mapping[str, Any]) -> list[str]:
    """A cache entry begins with its parameters, and the results begin with the time."""
    names = list(entry)
    return names[: names.index("time")]


def _problem(size: Any, file: FileContent) -> dict[str, Any]:
    try:
        return {} if size is None else {"problem_size": freeze_value(size)}
    except SpaceError as error:
        raise TableError(f"{file.path} has an invalid problem size: {error}") from None


def _t4_table(file: FileContent) -> Table:
    rows, _, whole = _scanned(file, "results", _add_result)
    kernel, device = named_by_file(file)
    return replace(rows.table(kernel, device, {}, "t4"), notes=reading_notes(rows, whole))


def _add_result(rows: Rows, entry: Any, header: Mapping[str, Any]) -> None:
    if not isinstance(entry, dict) or not isinstance(entry.get("configuration"), dict):
        raise Unusable
    times = entry.get("times")
    times = times if isinstance(times, dict) else {}
    invalidity = str(entry.get("invalidity"))
    status = _T4_STATUSES.get(invalidity, Status.RUN_ERROR)
    runtimes = times.get("runtimes")
    rows.add(
        read_config(entry["configuration"], entry["configuration"]),
        status,
        runtimes if isinstance(runtimes, list) and runtimes else _measured_times(entry),
        times.get("compilation", times.get("compilation_time")),
        {"check": times.get("validation"), "framework": times.get("framework")},
        "" if status is Status.OK else invalidity,
        entry.get("timestamp"),
    )


def _measured_times(entry: Mapping[str, Any]) -> list[Any]:
    listed = entry.get("measurements")
    measurements = listed if isinstance(listed, list) else []
    return [
        one.get("value")
        for one in measurements
        if isinstance(one, dict) and one.get("name") == "time"
    ]


def _unit(metadata: Any, rows: Rows, file: FileContent) -> int:
    unit = metadata.get("timeunit", "milliseconds") if isinstance(metadata, dict) else None
    if not isinstance(unit, str) or unit not in _NS_PER_UNIT:
        raise TableError(
            f"{file.path} has the unknown time unit {unit!r}; valid: {', '.join(_NS_PER_UNIT)}"
        )
    if rows.configs and _NS_PER_UNIT[unit] != rows.ns_per_unit:
        raise TableError(
            f"{file.path} gives its time unit {unit} after the results; it must come first"
        )
    return _NS_PER_UNIT[unit]

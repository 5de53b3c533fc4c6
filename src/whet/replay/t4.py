"""T4 files, which say what unit they are in and neither which kernel nor which device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from whet.core.status import Status
from whet.replay.decoding import TableError
from whet.replay.files import FileContent
from whet.replay.foreign import (
    NS_PER_MS,
    Rows,
    Unusable,
    named_by_file,
    read_config,
    reading_notes,
    refuse_empty,
)
from whet.replay.scanning import CutOff, Scanner
from whet.replay.table import Table

_STATUSES = {
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


def t4_table(file: FileContent) -> Table:
    scanner = Scanner(file.data.decode(errors="replace"))
    rows, whole = Rows(), file.whole
    try:
        for name in scanner.members():
            if name == "metadata":
                rows.ns_per_unit = _unit(scanner.value(), rows, file)
            elif name == "results":
                for _ in scanner.members():
                    entry = scanner.value()
                    with rows.reading():
                        _add(rows, entry)
            else:
                scanner.value()
    except CutOff:
        whole = False
    refuse_empty(rows, file, "results")
    kernel, device = named_by_file(file)
    return replace(rows.table(kernel, device, {}, "t4"), notes=reading_notes(rows, whole))


def _add(rows: Rows, entry: Any) -> None:
    if not isinstance(entry, dict) or not isinstance(entry.get("configuration"), dict):
        raise Unusable
    times = entry.get("times")
    times = times if isinstance(times, dict) else {}
    invalidity = str(entry.get("invalidity"))
    status = _STATUSES.get(invalidity, Status.RUN_ERROR)
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

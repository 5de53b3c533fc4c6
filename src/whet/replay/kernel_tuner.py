"""Kernel Tuner caches, which are in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from whet.core.config import freeze_value
from whet.core.errors import SpaceError
from whet.core.status import Status
from whet.replay.decoding import TableError
from whet.replay.files import FileContent
from whet.replay.foreign import (
    FAILED_TIME,
    Rows,
    Unusable,
    is_time,
    named_by_file,
    read_config,
    reading_notes,
    refuse_empty,
)
from whet.replay.scanning import CutOff, Scanner
from whet.replay.table import Table

_STATUSES = {
    "InvalidConfig": Status.CONSTRAINT,
    "CompilationFailedConfig": Status.BUILD_ERROR,
    "RuntimeFailedConfig": Status.RUN_ERROR,
}


def kernel_tuner_table(file: FileContent) -> Table:
    scanner = Scanner(file.data.decode(errors="replace"))
    header: dict[str, Any] = {}
    rows, whole = Rows(), file.whole
    try:
        for name in scanner.members():
            if name != "cache":
                header[name] = scanner.value()
                continue
            for _ in scanner.members():
                entry = scanner.value()
                with rows.reading():
                    _add(rows, entry, header)
    except CutOff:
        whole = False
    refuse_empty(rows, file, "cache")
    named = named_by_file(file)
    table = rows.table(
        kernel=str(header.get("kernel_name") or named[0]),
        device=str(header.get("device_name") or named[1]),
        key=_problem(header.get("problem_size"), file),
        source="kernel-tuner",
    )
    return replace(table, notes=reading_notes(rows, whole))


def _add(rows: Rows, entry: Any, header: Mapping[str, Any]) -> None:
    if not isinstance(entry, dict) or "time" not in entry:
        raise Unusable
    names = header.get("tune_params_keys") or _names_before_time(entry)
    time = entry["time"]
    times = entry.get("times") or [time]
    if isinstance(time, str):
        status, error = _STATUSES.get(time, Status.RUN_ERROR), time
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

"""`whet export csv blur --out results` and `whet import csv results/blur.csv`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from whet.core.config import Config
from whet.core.errors import SpaceError
from whet.core.frozen import FrozenMap
from whet.core.timing import Summary
from whet.interop import (
    FileReading,
    Finding,
    Format,
    FormatError,
    MeasuredWorkload,
    OutFile,
    ReadOptions,
    Tried,
)
from whet.interop.files import read_text, written_at
from whet.interop.findings import quickest

KEY, CONFIG = "key.", "config."


def write(measured: Sequence[MeasuredWorkload]) -> list[OutFile]:
    """One file for each kernel, one row for each config that was timed: `device`, `key.M`,
    `config.BM`, `median_ns`. Whatever is not a number is JSON."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for one in measured:
        known = {"device": one.workload.device.name, **_cells(KEY, one.workload.key)}
        rows.setdefault(one.workload.kernel, []).extend(
            {**known, **_cells(CONFIG, config), "median_ns": repr(ns)}
            for config, ns in one.times().items()
        )
    return [OutFile(PurePosixPath(f"{kernel}.csv"), _table(of)) for kernel, of in rows.items()]


def read(path: Path, options: ReadOptions) -> FileReading:
    """The kernel is the file's name, unless it is given."""
    tried: dict[tuple[str, FrozenMap[Any]], list[Tried]] = {}
    for number, row in enumerate(csv.DictReader(io.StringIO(read_text(path))), 2):
        try:
            ns = float(row["median_ns"])
            key, config = FrozenMap(_values(KEY, row)), Config(_values(CONFIG, row))
            device = options.device or row["device"]
        except (KeyError, TypeError, ValueError, SpaceError) as error:
            raise FormatError(f"{path}:{number} is not a row of results: {error!r}") from None
        one = Tried(config, timing=Summary(ns, ns, ns, "csv"))
        tried.setdefault((device, key), []).append(one)
    if not tried:
        raise FormatError(f"{path} has no rows")
    kernel, created = options.kernel or path.stem, written_at(path)
    return FileReading(
        tuple(
            Finding(kernel, device, key, "csv", tuple(of), best=quickest(of), created=created)
            for (device, key), of in tried.items()
        )
    )


CSV = Format(read=read, write=write)


def _cells(prefix: str, values: Any) -> dict[str, str]:
    return {f"{prefix}{name}": json.dumps(value) for name, value in values.items()}


def _values(prefix: str, row: dict[str, str]) -> dict[str, Any]:
    """An empty cell is a parameter that this row does not have."""
    return {
        name.removeprefix(prefix): json.loads(text)
        for name, text in row.items()
        if name and name.startswith(prefix) and text
    }


def _table(rows: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()

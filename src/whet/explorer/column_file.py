"""Columns kept beside a store, so that a large one opens at once. They can be deleted at any time.

A file has the columns of one workload up to some trial. It is used only if the store still has
that trial and as many before it; what came later is read from the store.

The later half of a large workload is read by another process meanwhile:

    python -m whet.explorer.column_file STORE WORKLOAD_ID AFTER

writes the columns of the trials after a mark to stdout, as such a file has them.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from whet.explorer.columns import LatestRows, TrialColumns, ValueCodes
from whet.store import open_store
from whet.store.beside import COLUMN_SUFFIX
from whet.store.scanning import TrialScan, scan

_MAGIC = b"whetcol\x01"
_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 8
_KINDS = frozenset({"uint8", "uint16", "uint32", "uint64", "int64", "float32"})

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error)

# Below that many rows a file saves nothing that anybody would notice.
FEWEST_ROWS = 20_000

# Below that many trials, starting a process takes longer than it saves.
FEWEST_TO_HALVE = 200_000
BATCH = 20_000
_MODULE = "whet.explorer.column_file"


def path_in(folder: Path, workload_id: str) -> Path | None:
    return folder / f"{workload_id}{COLUMN_SUFFIX}" if workload_id.isalnum() else None


def due(columns: TrialColumns, kept_rows: int) -> bool:
    """Whether writing is worth it: not for every few trials of a run that goes on."""
    return columns.rows >= FEWEST_ROWS and columns.rows >= 1.1 * kept_rows


def save(columns: TrialColumns, path: Path, scan: TrialScan) -> bool:
    """All or nothing; False where it cannot be written, which is no misfortune."""
    last = scan.trial(columns.last_mark)
    if last is None:
        return False
    try:
        path.parent.mkdir(exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".whet-")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            write(columns, last.id, file)
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            os.unlink(draft)
        return False
    return True


def load(path: Path, scan: TrialScan) -> TrialColumns | None:
    """None where there is none, or it does not fit the store."""
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
        columns, last_id = read(data)
    except UNREADABLE:
        return None
    last = scan.trial(columns.last_mark)
    if last is None or last.id != last_id or scan.count(columns.last_mark) != columns.rows:
        return None
    return columns


def write(columns: TrialColumns, last_id: str, file: Any) -> None:
    """`last_id` is the id of the last trial, by which `load` knows the store again."""
    names = sorted({name for chunk in columns.chunks for name in chunk})
    stored = {name: columns.stored(name) for name in names}
    described: list[tuple[str, str, int]] = []
    offset = 0
    for name, parts in stored.items():
        kind = np.result_type(*(part.dtype for part in parts))
        described.append((name, kind.name, offset))
        offset += -(-columns.rows * kind.itemsize // _ALIGNMENT) * _ALIGNMENT
    header = {
        "rows": columns.rows,
        "last_mark": columns.last_mark,
        "last_id": last_id,
        "parameters": {name: codes.values for name, codes in columns.parameters.items()},
        "errors": columns.errors.values,
        "runs": columns.runs.values,
        "begun": columns.begun,
        "columns": described,
    }
    body = json.dumps(header, separators=(",", ":")).encode()
    body += b" " * (-len(body) % _ALIGNMENT)
    file.write(_MAGIC + _LENGTH.pack(len(body)) + body)
    for name, stored_as, _ in described:
        written = 0
        for part in stored[name]:
            written += file.write(part.astype(stored_as, copy=False).tobytes())
        file.write(bytes(-written % _ALIGNMENT))


def read(data: Any) -> tuple[TrialColumns, str]:
    """What `write` has written, from an array of bytes; one of `UNREADABLE` for anything else."""
    start = len(_MAGIC) + _LENGTH.size
    if data[: len(_MAGIC)].tobytes() != _MAGIC:
        raise ValueError("not a file of columns, or of another version")
    (length,) = _LENGTH.unpack(data[len(_MAGIC) : start].tobytes())
    header = json.loads(data[start : start + length].tobytes())
    rows = int(header["rows"])
    chunk = {}
    for name, kind, offset in header["columns"]:
        if kind not in _KINDS:
            raise ValueError("a column has an unknown type")
        at = start + length + int(offset)
        chunk[name] = np.frombuffer(data, kind, rows, at)
    columns = TrialColumns(
        rows=rows,
        last_mark=int(header["last_mark"]),
        parameters={name: ValueCodes(values) for name, values in header["parameters"].items()},
        errors=ValueCodes(header["errors"]),
        runs=ValueCodes(header["runs"]),
        chunks=[chunk],
        latest=LatestRows.of(chunk["id"]),
        begun=dict(header["begun"]),
    )
    if not isinstance(header["last_id"], str) or not _in_range(columns, chunk):
        raise ValueError("a column does not fit its header")
    return columns, header["last_id"]


def _in_range(columns: TrialColumns, chunk: dict[str, Any]) -> bool:
    """Codes that lead nowhere would only show later, and as nonsense."""
    lists = {f"p:{name}": codes.values for name, codes in columns.parameters.items()}
    lists |= {"error": columns.errors.values, "run": columns.runs.values}
    return all(
        name in chunk and (not len(chunk[name]) or int(chunk[name].max()) < len(values))
        for name, values in lists.items()
    )


class SecondHalf:
    """Read by a process that is started at once. `start` is the last mark of the first half."""

    def __init__(self, location: str, workload_id: str, start: int) -> None:
        self.start = start
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever reads it
        command = [sys.executable, "-m", _MODULE, location, workload_id, str(start)]
        self._process = subprocess.Popen(
            command, stdout=self._out, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )

    @classmethod
    def of(cls, location: str, workload_id: str, scan: TrialScan, trials: int) -> SecondHalf | None:
        """None where it would not help, or no process is to be had."""
        if trials < FEWEST_TO_HALVE or len(os.sched_getaffinity(0)) < 2:
            return None
        middle = scan.mark_at(trials // 2)
        try:
            return None if middle is None else cls(location, workload_id, middle)
        except OSError:
            return None

    def finished(self, wait_s: float) -> bool:
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def columns(self) -> TrialColumns | None:
        """Once it has finished; None where it failed, so that somebody else has to read them."""
        with self._out:
            if self._process.returncode != 0:
                return None
            try:
                data = np.memmap(self._out, dtype=np.uint8, mode="r")
                return read(data)[0]
            except UNREADABLE:
                return None

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._out.close()


def main(location: str, workload_id: str, after: str) -> None:
    with open_store(location, read_only=True) as store:
        columns = TrialColumns({run.id: run.started for run in store.runs(workload_id)})
        columns.last_mark = int(after)
        reading = scan(store, workload_id)
        while len(rows := reading.rows(columns.last_mark, BATCH)):
            columns.extend(rows)
    write(columns, "", sys.stdout.buffer)


if __name__ == "__main__":
    main(*sys.argv[1:])

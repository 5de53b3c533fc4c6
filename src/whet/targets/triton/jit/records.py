"""What was recorded, on disk: `runs.db.jit` beside the store, with one line a specialization, the
binaries they became, and the libraries that Triton had the C compiler build."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from whet.core.errors import UsageError
from whet.store import jit_folder
from whet.targets.triton.jit.specialization import RecordError, Specialization
from whet.targets.triton.packed.binary_cache import FolderCache

_RECORDS = "records.jsonl"
_BINARIES = "binaries"


class Records:
    """Many processes may add to one. What is added twice is there once: the latest counts."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.binaries = FolderCache(self.folder / _BINARIES)

    @classmethod
    def beside(cls, store: str | None) -> Records:
        """Beside the store that the settings name."""
        folder = jit_folder(store)
        if folder is None:
            raise UsageError(
                "specializations are recorded beside a store in a file; set WHET_STORE to a path"
            )
        return cls(folder)

    def add(self, found: Iterable[Specialization]) -> None:
        lines = "".join(json.dumps(one.to_json()) + "\n" for one in found)
        if not lines:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked() as descriptor:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, ("\n" * torn + lines).encode())

    def all(self) -> list[Specialization]:
        """In the order in which they were first met. A line that a killed process has left
        unfinished is skipped."""
        try:
            lines = (self.folder / _RECORDS).read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"cannot read {self.folder / _RECORDS}: {error.strerror}") from None
        found: dict[str, Specialization] = {}
        for line in lines:
            try:
                one = Specialization.from_json(json.loads(line))
            except (RecordError, ValueError, RecursionError):
                continue
            found[one.id] = _later(found.get(one.id), one)
        return list(found.values())

    @contextmanager
    def _locked(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.folder / _RECORDS, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def _later(known: Specialization | None, one: Specialization) -> Specialization:
    """The newer one, but met is met: a derived one does not make a recorded one derived."""
    if known is None or not one.met.derived or known.met.derived:
        return one
    return known

"""`open_bundle`: one file with results, cost models and binaries, used where it is.

Its results are read as a store is: `BundleStore`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from whet.core.errors import StoreError
from whet.core.miss import Miss
from whet.core.process import Mark
from whet.core.run import Run
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.bundles.archive import (
    JIT,
    METADATA,
    MISSED,
    Archive,
    Manifest,
    binary_entry,
    bundle_error,
    index_entry,
    model_entry,
    parsed,
    store_entry,
)
from whet.store.bundles.records import Group, IndexLine, Lines, divided, indexed, misses_of
from whet.store.matching import nearest
from whet.store.protocol import LOCK, Match, Models, Pick, StoreReader, WorkloadSummary

_BINARIES = "binaries/"


class Bundle:
    """A bundle that is open. Reading it executes nothing, writes nothing, and never yields bytes
    other than those the manifest has the hash of; `BundleError` says what is wrong with it."""

    def __init__(self, path: str | Path) -> None:
        self._archive = Archive(Path(path).expanduser().absolute())
        self.store = BundleStore(self._archive)
        self._checked = False
        self._binaries: dict[str, list[str]] = {}
        for name in self.manifest.entries:
            if name.startswith(_BINARIES):
                _, key, file = name.split("/")
                self._binaries.setdefault(key, []).append(file)

    @property
    def path(self) -> Path:
        return self._archive.path

    @property
    def manifest(self) -> Manifest:
        return self._archive.manifest

    def model(self, name: str) -> str | None:
        """A cost model's text, as it was handed over."""
        return self.store.models.get(name)

    def model_names(self) -> list[str]:
        return list(self.store.models)

    def binary_keys(self) -> list[str]:
        return sorted(self._binaries)

    def binary_files(self, key: str) -> dict[str, bytes]:
        """Every file of a compiled kernel, its metadata included; empty for an unknown key."""
        files = sorted(self._binaries.get(key, ()))
        return {file: self._archive.read(binary_entry(key, file)) for file in files}

    def binary(self, key: str) -> tuple[Mapping[str, Any], Mapping[str, bytes]] | None:
        """The compiled kernel's metadata and its other files."""
        files = self.binary_files(key)
        if not files:
            return None
        try:
            metadata = parsed(files.pop(METADATA), f"the metadata of binary {key}")
        except KeyError:
            raise bundle_error(self.path, f"binary {key} has no {METADATA}") from None
        except ValueError as error:
            raise bundle_error(self.path, str(error)) from None
        if not isinstance(metadata, dict):
            raise bundle_error(self.path, f"the metadata of binary {key} is not an object")
        return metadata, files

    def jit_lines(self) -> list[bytes]:
        """What describes specializations of kernels, one a line; not looked into here."""
        if JIT not in self.manifest.entries:
            return []
        return self._archive.read(JIT).splitlines()

    def check(self) -> None:
        """Reads all of it, once: whatever there is to refuse is refused now."""
        if self._checked:
            return
        self.store.check()
        for key in self._binaries:
            self.binary(key)
        self.jit_lines()
        for name in self.store.models:
            self._archive.read(model_entry(name))
        self._checked = True

    def close(self) -> None:
        self.store.close()
        self._archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_bundle(path: str | Path) -> Bundle:
    """Reads the manifest and the list of entries; everything else when it is asked for."""
    return Bundle(path)


_Identity = tuple[str, int, int, int, int]
_last: tuple[_Identity, Bundle] | None = None


def active_bundle(path: str | Path) -> Bundle:
    """As `open_bundle`, and open for the life of the process: what everybody asks is read once.

    A file that somebody has put in its place is opened instead.
    """
    global _last
    whole = Path(path).expanduser().absolute()
    try:
        status = whole.stat()
    except OSError as error:
        raise bundle_error(whole, f"it cannot be opened ({error.strerror})") from None
    identity = (
        os.fspath(whole), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    )  # fmt: skip
    if _last is None or _last[0] != identity:
        _last = identity, Bundle(whole)
    return _last[1]


_MODELS = "models/"

# Unpacked entries that are kept for the next question.
_KEPT_BYTES = 64 << 20


class BundleStore(StoreReader):
    """Reads what it is asked for and no more: one workload's results come from the one entry that
    its id names, a loose match from its kernel's index. Bundles hold no timelines."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._closed = False
        self._entries: dict[str, dict[str, Lines]] = {}
        self._entry_bytes = 0
        self._groups: dict[str, Group | None] = {}
        self._indexes: dict[str, list[IndexLine]] = {}
        self._run_homes: dict[str, str] | None = None
        kernels = archive.manifest.kernels
        self._kernels = {kernel.name: index_entry(n) for n, kernel in enumerate(kernels)}

    @property
    def location(self) -> str:
        return str(self._archive.path)

    @property
    def read_only(self) -> bool:
        return True

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        with self._reading():
            group = self._group(workload_id)
            if group is None:
                return []
            return list(group.trials if all else group.standing)

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        with self._reading():
            group = self._group(workload_id)
            return None if group is None else group.latest.get(config_id)

    def pick(self, workload_id: str) -> Pick | None:
        with self._reading():
            group = self._group(workload_id)
            return None if group is None else group.pick

    def runs(self, workload_id: str) -> list[Run]:
        with self._reading():
            group = self._group(workload_id)
            return [] if group is None else list(group.newest_runs)

    def run(self, run_id: str) -> Run | None:
        with self._reading():
            if self._run_homes is None:
                self._run_homes = dict(self._all_runs())
            home = self._run_homes.get(run_id)
            group = None if home is None else self._group(home)
            return None if group is None else {run.id: run for run in group.runs}[run_id]

    def timeline(self, run_id: str) -> Timeline | None:
        with self._reading():
            return None

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        with self._reading():
            names = list(self._kernels) if kernel is None else [kernel]
            found = [line.summary() for name in names for line in self._index(name)]
            return sorted(found, key=lambda one: (-one.active, one.workload.id))

    def match(self, workload: Workload) -> Match | None:
        with self._reading():
            same = self._group(workload.id)
            if same is not None:
                return Match("strict", same.workload)
            known = [line.workload for line in self._index(workload.kernel) if line.counts["ok"]]
            return nearest(workload, known)

    @property
    def models(self) -> BundleModels:
        return BundleModels(self._archive)

    def missed(self, kernel: str | None = None, *, tuned: bool = False) -> list[Miss]:
        with self._reading():
            if MISSED not in self._archive.manifest.entries:
                return []
            found = misses_of(self._archive.read(MISSED))
            return [miss for miss in found if kernel in (None, miss.workload.kernel)]

    def marks(self, workload_id: str) -> list[Mark]:
        return []

    def check(self) -> None:
        """Reads everything there is, so that whatever is wrong with it is raised now."""
        self.missed()
        with self._reading():
            kept = []
            for name in self._store_entries():
                for workload_id, lines in self._lines(name).items():
                    if store_entry(workload_id, self._archive.manifest.digits) != name:
                        raise ValueError(f"workload {workload_id} is in the wrong entry")
                    kept.append(_brief(lines.group().summary()))
            listed = [line.summary() for name in self._kernels for line in self._index(name)]
            if sorted(map(_brief, listed)) != sorted(kept):
                raise ValueError("its index and its results contradict each other")

    def close(self) -> None:
        self._closed = True

    def _group(self, workload_id: str) -> Group | None:
        if workload_id not in self._groups:
            name = store_entry(workload_id, self._archive.manifest.digits)
            lines = self._lines(name).get(workload_id)
            self._groups[workload_id] = None if lines is None else lines.group()
        return self._groups[workload_id]

    def _lines(self, name: str) -> dict[str, Lines]:
        if name in self._entries:
            return self._entries[name]
        if name not in self._archive.manifest.entries:
            return {}
        data = self._archive.read(name)
        if self._entry_bytes + len(data) > _KEPT_BYTES:
            self._entries.clear()
            self._entry_bytes = 0
        found: dict[str, Lines] = {}
        for workload_id, lines in divided(data):
            if workload_id in found:
                raise ValueError(f"workload {workload_id} appears twice")
            found[workload_id] = lines
        self._entries[name] = found
        self._entry_bytes += len(data)
        return found

    def _index(self, kernel: str) -> list[IndexLine]:
        name = self._kernels.get(kernel)
        if name is None:
            return []
        if kernel not in self._indexes:
            if name not in self._archive.manifest.entries:
                raise ValueError(f"the index of kernel {kernel} is missing")
            lines = list(indexed(self._archive.read(name)))
            if any(line.workload.kernel != kernel for line in lines):
                raise ValueError(f"the index of kernel {kernel} lists another kernel")
            self._indexes[kernel] = lines
        return self._indexes[kernel]

    def _store_entries(self) -> list[str]:
        return [name for name in self._archive.manifest.entries if name.startswith("store")]

    def _all_runs(self) -> Iterator[tuple[str, str]]:
        for name in self._store_entries():
            for workload_id, lines in self._lines(name).items():
                for run in lines.read_runs():
                    yield run.id, workload_id

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with LOCK:
            if self._closed:
                raise StoreError(f"bundle {self.location} is closed; open it again")
            try:
                yield
            except ValueError as error:
                raise bundle_error(self._archive.path, str(error)) from None


class BundleModels(Models):
    """The cost models of a bundle, as they were handed over."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def __getitem__(self, name: str) -> str:
        entry = model_entry(name)
        if entry not in self._archive.manifest.entries:
            raise KeyError(name)
        try:
            return self._archive.read(entry).decode()
        except UnicodeDecodeError:
            raise bundle_error(self._archive.path, f"entry {entry} is not text") from None

    def __setitem__(self, name: str, text: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self._archive.path))

    def __delitem__(self, name: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self._archive.path))

    def __iter__(self) -> Iterator[str]:
        entries = (name for name in self._archive.manifest.entries if name.startswith(_MODELS))
        return iter(sorted(unquote(name[len(_MODELS) : -len(".json")]) for name in entries))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _brief(one: WorkloadSummary) -> tuple[str, int, int, int, float, str, list[str]]:
    best, rivals = "" if one.best is None else one.best.id, [rival.id for rival in one.rivals]
    return one.workload.id, one.trials, one.configs, one.ok, one.active, best, rivals

"""`BundleStore`: what a bundle knows, to be read as a store is."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from whet.core.errors import StoreError
from whet.core.miss import Miss
from whet.core.process import Mark
from whet.core.run import Run
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.bundles.archive import Archive
from whet.store.bundles.format import (
    MISSED,
    bundle_error,
    index_entry,
    model_entry,
    store_entry,
)
from whet.store.bundles.misses import misses_of
from whet.store.bundles.records import IndexLine, Lines, divided, indexed
from whet.store.locking import LOCK
from whet.store.matching import nearest
from whet.store.memory import WorkloadHistory
from whet.store.protocol import Match, Models, Pick, StoreReader, WorkloadSummary

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
        self._histories: dict[str, WorkloadHistory | None] = {}
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
            history = self._history(workload_id)
            if history is None:
                return []
            return list((history.trials if all else history.latest).values())

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        with self._reading():
            history = self._history(workload_id)
            return None if history is None else history.latest.get(config_id)

    def best(self, workload_id: str) -> Trial | None:
        with self._reading():
            history = self._history(workload_id)
            return None if history is None else history.best()

    def pick(self, workload_id: str) -> Pick | None:
        with self._reading():
            history = self._history(workload_id)
            return None if history is None else history.pick()

    def runs(self, workload_id: str) -> list[Run]:
        with self._reading():
            history = self._history(workload_id)
            return [] if history is None else history.newest_runs()

    def run(self, run_id: str) -> Run | None:
        with self._reading():
            if self._run_homes is None:
                self._run_homes = dict(self._all_runs())
            home = self._run_homes.get(run_id)
            history = None if home is None else self._history(home)
            return None if history is None else history.runs[run_id]

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
            same = self._history(workload.id)
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
                    kept.append(_brief(lines.group().history().summary()))
            listed = [line.summary() for name in self._kernels for line in self._index(name)]
            if sorted(map(_brief, listed)) != sorted(kept):
                raise ValueError("its index and its results contradict each other")

    def close(self) -> None:
        self._closed = True

    def _history(self, workload_id: str) -> WorkloadHistory | None:
        if workload_id not in self._histories:
            name = store_entry(workload_id, self._archive.manifest.digits)
            lines = self._lines(name).get(workload_id)
            self._histories[workload_id] = None if lines is None else lines.group().history()
        return self._histories[workload_id]

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

"""`Library`: every workload there is to look at, and `StorePlace`, where they come from."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet._version import __version__
from whet.core.miss import Miss
from whet.explorer.glossary import GLOSSARY
from whet.explorer.stored import StoreSubject, subjects_of
from whet.explorer.subject import NotThereError, OriginName, Subject, line_json
from whet.replay.table import Table
from whet.store import (
    OverlayStore,
    StoreReader,
    WorkloadSummary,
    is_missing,
    open_if_there,
    store_place,
)
from whet.store.scanning import FileState, file_state, status_counts

# Columns of that many rows are kept in memory; what was looked at first goes first.
MOST_ROWS = 2_000_000
# A list of workloads that takes longer is not made anew for every trial of a run that goes on.
LONG_S = 0.05


class StorePlace:
    def __init__(self, where: str | None, bundle: str | None = None) -> None:
        self._where = where
        self._bundle = bundle
        self._lock = threading.Lock()
        self._missing = is_missing(where)
        self._store: StoreReader = open_if_there(where, bundle=bundle, direct=True)

    @property
    def location(self) -> str:
        return store_place(self._where)

    @property
    def store(self) -> StoreReader:
        """As it is now, read only."""
        with self._lock:
            missing = is_missing(self._where)
            if missing != self._missing or self._store.replaced:
                opened = open_if_there(self._where, bundle=self._bundle, direct=True)
                self._store.close()
                self._store, self._missing = opened, missing
            return self._store


class Library:
    """A store, which may grow meanwhile, and tables by name."""

    def __init__(
        self,
        store: StorePlace | StoreReader | None = None,
        tables: Mapping[str, Table] | None = None,
        against: StoreReader | None = None,
        *,
        is_sample: bool = False,
    ) -> None:
        """`against` is another store, which is read as it is now."""
        self._place = store
        self.is_sample = is_sample
        self._against = against
        others: list[Subject] = [*_beside(against), *subjects_of(dict(tables or {}))]
        self._others = {one.id: one for one in others}
        self._stored: dict[str, StoreSubject] = {}
        self._read_from: StoreReader | None = None
        self._listed: _Listing | None = None
        self._used: list[str] = []
        self._lock = threading.Lock()
        self._listing = threading.Lock()

    @property
    def store(self) -> StoreReader | None:
        place = self._place
        return place.store if isinstance(place, StorePlace) else place

    def about(self) -> dict[str, Any]:
        subjects = self.subjects()
        return {
            "version": __version__,
            "store": "" if self._place is None or self.is_sample else self._place.location,
            "sample": self.is_sample,
            "live": self._place is not None,
            "kernels": len({one.workload.kernel for one in subjects}),
            "workloads": len(subjects),
            "glossary": GLOSSARY,
        }

    def subjects(self) -> list[Subject]:
        """The store's first, the most recently active one in front; of a sample the tables, in
        which there is most to look at."""
        stored, others = self._refreshed(), [*self._others.values()]
        return [*others, *stored] if self.is_sample else [*stored, *others]

    def subject(self, id: str) -> Subject:
        found: Subject | None = self._others.get(id) or self._stored.get(id)
        if found is None:
            found = next((one for one in self.subjects() if one.id == id), None)
        if found is None:
            raise NotThereError(f"there is no workload '{id}'; see /api/workloads")
        self._make_room(found)
        return found

    def subject_of_run(self, run_id: str) -> Subject:
        for store, end in ((self.store, ""), (self._against, "-b")):
            run = None if store is None else store.run(run_id)
            if run is not None:
                return self.subject(run.workload.id + end)
        raise NotThereError(f"there is no run '{run_id}'")

    def summaries(self) -> list[dict[str, Any]]:
        others = [one.summary() for one in self._others.values()]
        store = self.store
        if store is None:
            return others
        subjects = self._refreshed()
        lacking = {one.id for one in subjects if one.lacks_counts}
        counted = status_counts(store, [one.known for one in subjects]) if lacking else {}
        lines = [
            one.summary(counted.get(one.id) if one.id in lacking else None) for one in subjects
        ]
        return [*lines, *(_missed(store, miss) for miss in store.missed()), *others]

    def _refreshed(self) -> list[StoreSubject]:
        store = self.store
        if store is None:
            return []
        known, under = self._workloads(store), _only_under(store)
        with self._lock:
            if store is not self._read_from:
                self._stored, self._read_from = {}, store
            for one in known:
                id = one.workload.id
                if id in self._stored:
                    self._stored[id].renew(one)
                else:
                    origin: OriginName = "bundle" if id in under else "store"
                    place = "" if self._against is None else _short(store)
                    self._stored[id] = StoreSubject(store, one, origin, place=place)
            ids = {one.workload.id for one in known}
            for gone in [id for id in self._stored if id not in ids]:
                del self._stored[gone]
            return [self._stored[one.workload.id] for one in known]

    def _workloads(self, store: StoreReader) -> list[WorkloadSummary]:
        """Counting a million trials takes a while, and a page asks for several things at once."""
        with self._listing:
            if self._listed is None or not self._listed.holds(store):
                self._listed = _Listing.of(store)
            return self._listed.workloads

    def _make_room(self, wanted: Subject) -> None:
        with self._lock:
            self._used = [id for id in self._used if id != wanted.id] + [wanted.id]
            while len(self._used) > 1 and self._loaded() > MOST_ROWS:
                oldest = self._stored.get(self._used.pop(0))
                if oldest is not None:
                    oldest.forget()

    def _loaded(self) -> int:
        return sum(self._stored[id].loaded_rows for id in self._used if id in self._stored)


@dataclass(frozen=True)
class _Listing:
    """One that took long to make serves for a while, though a run changes the store meanwhile."""

    store: StoreReader
    state: FileState | None
    workloads: list[WorkloadSummary]
    until: float

    @classmethod
    def of(cls, store: StoreReader) -> _Listing:
        state, began = file_state(store), time.thread_time()
        found = store.workloads()
        took = time.thread_time() - began
        return cls(store, state, found, time.monotonic() + (20 * took if took > LONG_S else 0.0))

    def holds(self, store: StoreReader) -> bool:
        if store is not self.store:
            return False
        unchanged = self.state is not None and self.state == file_state(store)
        return unchanged or time.monotonic() < self.until


def _short(store: StoreReader) -> str:
    return Path(store.location).name or store.location


def _beside(store: StoreReader | None) -> list[StoreSubject]:
    if store is None:
        return []
    known = store.workloads()
    found = [StoreSubject(store, one, place=_short(store), beside=True) for one in known]
    counted = status_counts(store, known)
    for one in found:
        one.summary(counted.get(one.workload.id))
    return found


def _only_under(store: StoreReader) -> set[str]:
    """The workloads that only a bundle under the store knows."""
    if not isinstance(store, OverlayStore):
        return set()
    own, under = store.layers
    mine = {one.workload.id for one in own.workloads()}
    return {one.workload.id for one in under.workloads()} - mine


def _missed(store: StoreReader, miss: Miss) -> dict[str, Any]:
    """A key that was met where nothing may be tuned: what it uses is another key's."""
    match = store.match(miss.workload)
    inherited = {"inherited_from": None if match is None else match.workload.id}
    seen = {"first_seen": miss.at, "last_seen": miss.at}
    return line_json(miss.workload.id, miss.workload, "store", exact=inherited, **seen)

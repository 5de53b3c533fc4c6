"""`StorePlace`: the store at a place, also where one appears or is replaced meanwhile."""

from __future__ import annotations

import threading

from whet.store import StoreReader, is_missing, open_if_there, store_place


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

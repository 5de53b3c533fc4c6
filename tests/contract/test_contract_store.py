from __future__ import annotations

from pathlib import Path

from whet.store import MemoryStore, SqliteStore, Store
from whet.testing.store_kit import StoreContract


class TestSqliteStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return SqliteStore(folder / "store.db")


class TestMemoryStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return MemoryStore()

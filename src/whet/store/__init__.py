"""What is already known: the store's contract, SQLite, and one that leaves nothing behind.

Names are imported when first used: a look into one store needs little of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.core.lazy import lazily

if TYPE_CHECKING:
    from whet.store.merging import MergedPick, MergeReport
    from whet.store.opening import (
        ir_folder,
        is_missing,
        jit_folder,
        lock_folder,
        open_if_there,
        open_store,
        over_bundle,
        printable,
        store_place,
        trusting,
        unsent,
    )
    from whet.store.overlay import OverlayStore
    from whet.store.protocol import (
        Match,
        Pick,
        Store,
        StoreReader,
        StoreWriter,
        WorkloadSummary,
    )
    from whet.store.sql import MemoryStore, SqliteStore
    from whet.store.sweeping import GcReport

_HOMES = {
    "GcReport": "sweeping",
    "Match": "protocol",
    "MemoryStore": "sql",
    "MergeReport": "merging",
    "MergedPick": "merging",
    "OverlayStore": "overlay",
    "Pick": "protocol",
    "SqliteStore": "sql",
    "Store": "protocol",
    "StoreReader": "protocol",
    "StoreWriter": "protocol",
    "WorkloadSummary": "protocol",
    "ir_folder": "opening",
    "is_missing": "opening",
    "jit_folder": "opening",
    "lock_folder": "opening",
    "open_if_there": "opening",
    "open_store": "opening",
    "over_bundle": "opening",
    "printable": "opening",
    "store_place": "opening",
    "trusting": "opening",
    "unsent": "opening",
}

__all__ = [
    "GcReport",
    "Match",
    "MemoryStore",
    "MergeReport",
    "MergedPick",
    "OverlayStore",
    "Pick",
    "SqliteStore",
    "Store",
    "StoreReader",
    "StoreWriter",
    "WorkloadSummary",
    "ir_folder",
    "is_missing",
    "jit_folder",
    "lock_folder",
    "open_if_there",
    "open_store",
    "over_bundle",
    "printable",
    "store_place",
    "trusting",
    "unsent",
]

__getattr__ = lazily(__name__, _HOMES)

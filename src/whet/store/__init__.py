"""What is already known: the store's contract, SQLite, and one that leaves nothing behind."""

from whet.store.memory import MemoryStore
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
    GcReport,
    Match,
    MergedPick,
    MergeReport,
    Pick,
    Store,
    StoreReader,
    StoreWriter,
    WorkloadSummary,
)
from whet.store.sqlite import SqliteStore

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

"""What a store would put into a lock file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from whet.core.run import chosen_by
from whet.engine.lockfile.entries import LockEntry
from whet.store import Store, WorkloadSummary


@dataclass(frozen=True)
class StoredChoices:
    """`contested` are those about which merged stores disagree; `provisional` ones were picked by
    runs whose budget ended before they were confirmed."""

    by_id: Mapping[str, LockEntry]
    contested: tuple[LockEntry, ...] = ()
    provisional: tuple[LockEntry, ...] = ()


def stored_choices(store: Store, summaries: Iterable[WorkloadSummary]) -> StoredChoices:
    """Of results that differ in nothing but tools, the newest; of results equally new, the one
    whose id comes last."""
    found: dict[str, LockEntry] = {}
    contested: dict[str, LockEntry] = {}
    provisional: dict[str, LockEntry] = {}
    for one in sorted(summaries, key=lambda one: (one.active, one.workload.id)):
        if one.best is None:
            continue
        entry = LockEntry.of(one.workload, one.best.config)
        found[entry.id] = entry
        contested.pop(entry.id, None)
        provisional.pop(entry.id, None)
        if one.rivals:
            contested[entry.id] = entry
        chose = chosen_by(store.runs(one.workload.id), one.best.config)
        if chose is not None and chose.provisional:
            provisional[entry.id] = entry
    return StoredChoices(found, tuple(contested.values()), tuple(provisional.values()))

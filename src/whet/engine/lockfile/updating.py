"""What a store would put into a lock file; how two files differ, and what they say together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from whet.core.run import chosen_by
from whet.engine.lockfile.entries import Conflict, LockEntry, sort_key
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


_ById = Mapping[str, LockEntry]


@dataclass(frozen=True)
class LockDifference:
    """By id, in the order of a lock file; `changed` as before and after."""

    added: tuple[LockEntry, ...]
    removed: tuple[LockEntry, ...]
    changed: tuple[tuple[LockEntry, LockEntry], ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class LockMerge:
    """`entries` are those about which there is no doubt; a conflict is in none of them."""

    entries: tuple[LockEntry, ...]
    conflicts: tuple[Conflict, ...]


def difference(before: _ById, after: _ById) -> LockDifference:
    shared = before.keys() & after.keys()
    changed = [(before[id], after[id]) for id in shared if not before[id].says_as(after[id])]
    return LockDifference(
        tuple(sorted((after[id] for id in after.keys() - shared), key=sort_key)),
        tuple(sorted((before[id] for id in before.keys() - shared), key=sort_key)),
        tuple(sorted(changed, key=lambda pair: sort_key(pair[1]))),
    )


def merged(ours: _ById, theirs: _ById, base: _ById | None = None) -> LockMerge:
    """With `base`, the file that both began from, what only one side changed or removed is taken
    from that side. Without it every difference in a shared entry is a conflict."""
    entries: list[LockEntry] = []
    conflicts: list[Conflict] = []
    known = {} if base is None else base
    for id in ours.keys() | theirs.keys():
        one, two, origin = ours.get(id), theirs.get(id), known.get(id)
        if _same(one, two) or _same(two, origin):
            kept = one
        elif _same(one, origin):
            kept = two
        else:
            conflicts.append(Conflict(one, two))
            continue
        if kept is not None:
            entries.append(kept)
    return LockMerge(
        tuple(sorted(entries, key=sort_key)),
        tuple(sorted(conflicts, key=lambda one: sort_key(one.about))),
    )


def _same(one: LockEntry | None, two: LockEntry | None) -> bool:
    return one is two if one is None or two is None else one.says_as(two)

"""`whet lock`: the file that says which config each kernel uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, StoreOption, resolved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whet.engine.lockfile.entries import LockEntry
    from whet.engine.lockfile.merging import LockDifference, LockMerge
    from whet.engine.lockfile.updating import StoredChoices

ABOUT = "Write, check and merge the lock file, which fixes every choice."
EXAMPLES = """\b
Examples:
  whet lock update                      write whet.lock from the store
  whet lock diff                        what has changed in the store since
  whet lock check train.py              does it fit the kernels of train.py?
  WHET_LOCK=whet.lock WHET_MODE=require python train.py
"""
UPDATE_EXAMPLES = """\b
Examples:
  whet lock update                      every best config in the store
  whet lock update --kernel matmul      only this kernel
  whet lock update --keep               add what is missing, change nothing
  whet lock update --prune              also drop what the store does not know
"""
DIFF_EXAMPLES = """\b
Examples:
  whet lock diff                        whet.lock against the store
  whet lock diff old.lock new.lock      two lock files

\b
The exit code is 1 if there are differences.
"""
MERGE_EXAMPLES = """\b
Examples:
  whet lock merge ours.lock theirs.lock       show what would come of it
  whet lock merge ours.lock theirs.lock -o whet.lock
  whet lock merge ours.lock theirs.lock --base old.lock -o whet.lock

\b
Git calls it for you after 'whet.lock merge=whet' in .gitattributes and
  git config merge.whet.driver 'whet lock merge %A %B --base %O -o %A'

\b
If both files have different configs for one key, that is a conflict.
Conflicts are listed, written between markers, and the exit code is 1: keep
one side of each and remove the markers.
"""

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="The lock file (default: $WHET_LOCK, or whet.lock).",
        show_default=False,
    ),
]
KernelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kernel", metavar="NAME", help="Only this kernel, named as for 'whet best' (repeatable)."
    ),
]


def update(
    file: FileArgument = None,
    kernel: KernelOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Add what is missing; change no entry.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove entries that the store knows nothing about.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write the store's best configs to the lock file.

    Entries that the store knows nothing about, such as those for another GPU, are kept.
    """
    from whet.cli.terminal.output import print_json, print_lines
    from whet.engine.lockfile.merging import difference
    from whet.engine.lockfile.text import read_lock, write_lock

    path = lock_path(file)
    before = dict(read_lock(path).by_id) if path.exists() else {}
    known = _stored(store, kernel)
    after = {**known.by_id, **before} if keep else {**before, **known.by_id}
    if prune:
        after = {id: one for id, one in after.items() if id in known.by_id}
    changes = difference(before, after)
    if changes or not path.exists():
        write_lock(path, after.values())
    if json:
        named = {"contested": known.contested, "provisional": known.provisional}
        open_ones = {name: [str(one) for one in some] for name, some in named.items()}
        counted = {"v": 1, "lock": str(path), "entries": len(after)}
        print_json({**counted, **_as_json(changes), **open_ones})
        return
    print_lines(_difference_lines(changes))
    print_lines([f"contested: {one}; tune it again" for one in known.contested])
    print_lines([f"provisional: {one}; tune it again to confirm it" for one in known.provisional])
    print_lines([_summary(path, len(after), changes)])


def diff(
    file: FileArgument = None,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="OTHER", help="Another lock file (default: the store).", show_default=False
        ),
    ] = None,
    kernel: KernelOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the lock file with the store, or with another lock file."""
    from whet.cli.terminal.output import print_json, print_lines
    from whet.engine.lockfile.merging import difference
    from whet.engine.lockfile.text import read_lock

    path = lock_path(file)
    before = read_lock(path).by_id
    if other is not None:
        after = read_lock(other).by_id
    else:
        known = _stored(store, kernel).by_id
        after = {**before, **known}  # what a store does not know, it does not contradict
    changes = difference(before, after)
    if json:
        print_json({"v": 1, "lock": str(path), **_as_json(changes)})
    else:
        print_lines(_difference_lines(changes))
        where = "the store" if other is None else str(other)
        print_lines([_counts(changes) or f"{path} and {where} say the same"])
    if changes:
        raise typer.Exit(1)


def merge(
    ours: Annotated[Path, typer.Argument(metavar="OURS", help="A lock file.")],
    theirs: Annotated[Path, typer.Argument(metavar="THEIRS", help="Another one.")],
    base: Annotated[
        Path | None, typer.Option("--base", metavar="FILE", help="The file that both began from.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Merge two lock files and show conflicts."""
    from whet.cli.terminal.output import count_text, print_json, print_lines
    from whet.engine.lockfile.merging import merged
    from whet.engine.lockfile.text import read_lock, write_lock

    one = read_lock(ours)
    two = read_lock(theirs, like=one)
    begun = base is not None and base.exists() and base.stat().st_size  # Git's may be empty
    origin = read_lock(base, like=one).by_id if base is not None and begun else None
    found = merged(one.by_id, two.by_id, origin)
    if output is not None:
        write_lock(output, found.entries, found.conflicts, str(ours), str(theirs))
    if json:
        print_json({"v": 1, "entries": len(found.entries), "conflicts": _conflicts_json(found)})
    else:
        for conflict in found.conflicts:
            print_lines([f"conflict: {conflict.about}"])
            for name, side in ((ours, conflict.ours), (theirs, conflict.theirs)):
                print_lines([f"  {name}: {_side(side)}"])
        entries, conflicts = count_text(len(found.entries), "choice"), len(found.conflicts)
        said = count_text(conflicts, "conflict") if conflicts else "no conflicts"
        place = "nothing written; use -o FILE" if output is None else f"written to {output}"
        print_lines([f"{entries}, {said}; {place}"])
    if found.conflicts:
        raise typer.Exit(1)


def lock_path(file: Path | None) -> Path:
    from whet.engine.lockfile.finding import NAME

    return Path(file or resolved().settings.lock or NAME).expanduser()


def _stored(store: str | None, names: list[str] | None) -> StoredChoices:
    from whet.cli.arguments.reading import chosen, open_known
    from whet.engine.lockfile.updating import stored_choices

    with open_known(store) as opened:
        if names:
            return stored_choices(opened, [one for name in names for one in chosen(opened, name)])
        return stored_choices(opened, opened.workloads())


def _difference_lines(changes: LockDifference) -> list[str]:
    lines = [f"+ {one}: [{one.config}]" for one in changes.added]
    for before, after in changes.changed:
        if before.config == after.config:
            lines.append(f"~ {after}: [{after.config}], {_tools(before)} -> {_tools(after)}")
        else:
            lines.append(f"~ {after}: [{before.config}] -> [{after.config}]")
    return lines + [f"- {one}: [{one.config}]" for one in changes.removed]


def _tools(entry: LockEntry) -> str:
    return ", ".join(f"{name} {version}" for name, version in entry.toolchain.items()) or "no tools"


def _counts(changes: LockDifference) -> str:
    numbers = {"added": changes.added, "changed": changes.changed, "removed": changes.removed}
    return ", ".join(f"{len(some):,} {word}" for word, some in numbers.items() if some)


def _summary(path: Path, entries: int, changes: LockDifference) -> str:
    from whet.cli.terminal.output import count_text

    return f"{path}: {count_text(entries, 'choice')} ({_counts(changes) or 'unchanged'})"


def _side(entry: LockEntry | None) -> str:
    return "removed" if entry is None else f"[{entry.config}] with {_tools(entry)}"


def _as_json(changes: LockDifference) -> dict[str, Any]:
    return {
        "added": [entry_json(one) for one in changes.added],
        "changed": [
            {**entry_json(after), "before": dict(before.config)}
            for before, after in changes.changed
        ],
        "removed": [entry_json(one) for one in changes.removed],
    }


def _conflicts_json(found: LockMerge) -> list[dict[str, Any]]:
    def side(entry: LockEntry | None) -> Mapping[str, Any] | None:
        return None if entry is None else entry_json(entry)

    return [{"ours": side(one.ours), "theirs": side(one.theirs)} for one in found.conflicts]


def entry_json(entry: LockEntry) -> dict[str, Any]:
    return {
        "kernel": entry.kernel,
        "source": entry.fingerprint,
        "device": entry.device.name,
        "key": dict(entry.key),
        "config": dict(entry.config),
        "tools": dict(entry.toolchain),
    }

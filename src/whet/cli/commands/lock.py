"""`whet lock`: the file that says which config each kernel uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.locate import live_tuners
from whet.cli.arguments.options import (
    JsonOption,
    KernelsOption,
    ModuleOption,
    ProgramArgument,
    StoreOption,
    argument,
    option,
    resolved,
)
from whet.cli.arguments.reading import chosen, open_known
from whet.cli.terminal.output import count_text, print_json, print_lines
from whet.engine.lockfile.entries import read_lock, write_lock
from whet.engine.lockfile.in_force import NAME
from whet.engine.lockfile.updating import difference, merged, stored_choices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whet.engine.lockfile.entries import LockEntry, LockFile
    from whet.engine.lockfile.updating import LockDifference, LockMerge, StoredChoices

FileArgument = Annotated[
    Path | None, argument("FILE", "The lock file (default: $WHET_LOCK, or whet.lock).")
]


def update(
    file: FileArgument = None,
    kernel: KernelsOption = None,
    keep: Annotated[bool, option("--keep", "Add what is missing; change no entry.")] = False,
    prune: Annotated[
        bool, option("--prune", "Remove entries that the store knows nothing about.")
    ] = False,
    dry_run: Annotated[
        bool, option("--dry-run", "Only show what would change; the exit code is then 1.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write the store's best configs to the lock file.

    Entries that the store knows nothing about, such as those for another GPU, are kept.

    Examples:
      whet lock update                      every best config in the store
      whet lock update --kernel matmul      only this kernel
      whet lock update --keep               add what is missing, change nothing
      whet lock update --prune              also drop what the store does not know
      whet lock update --dry-run            what has changed in the store since
    """
    path = lock_path(file)
    before = dict(read_lock(path).by_id) if path.exists() else {}
    known = _stored(store, kernel)
    after = {**known.by_id, **before} if keep else {**before, **known.by_id}
    if prune:
        after = {id: one for id, one in after.items() if id in known.by_id}
    changes = difference(before, after)
    if not dry_run and (changes or not path.exists()):
        write_lock(path, after.values())
    if json:
        named = {"contested": known.contested, "provisional": known.provisional}
        open_ones = {name: [str(one) for one in some] for name, some in named.items()}
        counted = {"v": 1, "lock": str(path), "entries": len(after)}
        print_json({**counted, **_as_json(changes), **open_ones})
    else:
        print_lines(_difference_lines(changes))
        print_lines([f"contested: {one}; tune it again" for one in known.contested])
        print_lines(
            [f"provisional: {one}; tune it again to confirm it" for one in known.provisional]
        )
        print_lines([_summary(path, len(after), changes, dry_run)])
    if dry_run and changes:
        raise typer.Exit(1)


def merge(
    ours: Annotated[Path, argument("OURS", "A lock file.")],
    theirs: Annotated[Path, argument("THEIRS", "Another one.")],
    base: Annotated[Path | None, option("--base FILE", "The file that both began from.")] = None,
    output: Annotated[Path | None, option("--output -o FILE", "Where to write it.")] = None,
    dry_run: Annotated[
        bool, option("--dry-run", "Only show how they differ; the exit code is then 1.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Merge two lock files and show conflicts.

    Examples:
      whet lock merge ours.lock theirs.lock       show what would come of it
      whet lock merge old.lock new.lock --dry-run show every difference
      whet lock merge ours.lock theirs.lock -o whet.lock
      whet lock merge ours.lock theirs.lock --base old.lock -o whet.lock

    Git calls it for you after 'whet.lock merge=whet' in .gitattributes and
      git config merge.whet.driver 'whet lock merge %A %B --base %O -o %A'

    If both files have different configs for one key, that is a conflict.
    Conflicts are listed, written between markers, and the exit code is 1: keep
    one side of each and remove the markers.
    """
    one = read_lock(ours)
    two = read_lock(theirs, like=one)
    if dry_run:
        _print_difference(ours, theirs, difference(one.by_id, two.by_id), json)
        return
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


def _print_difference(ours: Path, theirs: Path, changes: LockDifference, json: bool) -> None:
    if json:
        print_json({"v": 1, "lock": str(ours), **_as_json(changes)})
    else:
        print_lines(_difference_lines(changes))
        print_lines([_counts(changes) or f"{ours} and {theirs} say the same"])
    if changes:
        raise typer.Exit(1)


def lock_path(file: Path | None) -> Path:
    return Path(file or resolved().settings.lock or NAME).expanduser()


def _stored(store: str | None, names: list[str] | None) -> StoredChoices:
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


def _summary(path: Path, entries: int, changes: LockDifference, dry_run: bool) -> str:
    left = "; nothing was written (--dry-run)" if dry_run else ""
    return f"{path}: {count_text(entries, 'choice')} ({_counts(changes) or 'unchanged'}){left}"


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


def check(
    program: ProgramArgument = None,
    module: ModuleOption = None,
    lock: Annotated[
        Path | None, option("--lock FILE", "The lock file (default: $WHET_LOCK, or whet.lock).")
    ] = None,
    accept: Annotated[bool, option("--accept", "Accept lines that were changed by hand.")] = False,
    json: JsonOption = False,
) -> None:
    """Find entries that were changed by hand, or that fit no kernel.

    Examples:
      whet lock check                       is whet.lock whole?
      whet lock check train.py              does it fit the kernels of train.py?
      whet lock check --module fla.ops      those of a library?
      whet lock check --accept              accept lines that were changed by hand

    The exit code is 1 if entries do not fit, and 2 if the file cannot be read.
    """
    path = lock_path(lock)
    found = read_lock(path, accept=accept)
    if accept:
        write_lock(path, found.entries)
    tuners = live_tuners(program, module) if program or module else []
    problems = _problems(found, tuners) if tuners else []
    if json:
        about = {"choices": len(found.by_id), "digest": found.digest, "problems": problems}
        print_json({"v": 1, "lock": str(path), **about})
    else:
        print_lines(problems)
        count = f"{count_text(len(found.by_id), 'choice')} of " + count_text(
            len(found.by_kernel), "kernel"
        )
        said = count_text(len(problems), "problem") if problems else "no problems"
        print_lines([f"{path}: {count}, digest {found.digest}: {said}"])
    if problems:
        raise typer.Exit(1)


def _problems(lock: LockFile, tuners: list[Any]) -> list[str]:
    """One line for each entry that its kernel would not use, and each kernel without any."""
    from whet.targets.triton.keys import plain_config
    from whet.targets.triton.source import source_of

    kernels: dict[str, list[Any]] = {}
    for tuner in tuners:
        if len(tuner.configs) > 1:
            kernels.setdefault(str(tuner.base_fn.__name__), []).append(tuner)
    lines: list[str] = []
    for name, alike in sorted(kernels.items()):
        entries = lock.by_kernel.get(name)
        if not entries:
            lines.append(f"{name}: the lock file has no entry for this kernel")
            continue
        sources = {source_of(tuner).fingerprint: tuner for tuner in alike}
        offered = {
            source: {plain_config(one) for one in tuner.configs}
            for source, tuner in sources.items()
        }
        lines += [text for one in entries if (text := _unusable(one, offered))]
    return lines


def _unusable(entry: LockEntry, offered: dict[str, set[Any]]) -> str:
    if entry.fingerprint not in offered:
        return f"{entry}: for another source ({entry.fingerprint})"
    if entry.config not in offered[entry.fingerprint]:
        return f"{entry}: [{entry.config}] is not one of the kernel's configs"
    return ""

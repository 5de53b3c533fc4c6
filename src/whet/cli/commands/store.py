"""`whet store`: what is kept, what may go, and what others know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, StoreOption, resolved
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.store import MergeReport

ABOUT = "List, remove, merge or check stored results."
EXAMPLES = """\b
Examples:
  whet store ls
  whet store gc --older-than 90d --dry-run
  whet store merge colleague.db
"""
LS_EXAMPLES = """\b
Examples:
  whet store ls
  whet store ls --json | jq '.workloads[].trials'
"""
GC_EXAMPLES = """\b
Examples:
  whet store gc --older-than 90d --dry-run   show what would be removed
  whet store gc --superseded                 results replaced by newer ones
  whet store gc --kernel matmul              everything about one kernel
  whet store gc --max-size 500M              the oldest, until the rest fits
  whet store gc --toolchain triton=3.5       results built with this version
  whet store gc --other-toolchains           results from old versions only
"""
MERGE_EXAMPLES = """\b
Examples:
  whet store merge colleague.db
  whet store merge rank0.db rank1.db --store all.db
"""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def ls(store: StoreOption = None, json: JsonOption = False) -> None:
    """List stored workloads."""
    from whet.cli.arguments.reading import NothingKnownError, open_known
    from whet.cli.terminal.output import print_json, print_lines
    from whet.cli.text.store import listing

    try:
        with open_known(store, bundle=False) as opened:
            location, size, known = opened.location, opened.size_bytes, opened.workloads()
    except NothingKnownError as nothing:
        if json:
            print_json({"v": 1, "store": nothing.place, "exists": False, "workloads": []})
        else:
            print(nothing)
        return
    if json:
        print_json(
            {
                "v": 1,
                "store": location,
                "exists": True,
                "workloads": [
                    {
                        "workload": one.workload.to_json(),
                        "trials": one.trials,
                        "configs": one.configs,
                        "ok": one.ok,
                        "active": one.active,
                        "best": None if one.best is None else dict(one.best.config),
                        "median_ns": one.median_ns,
                        "contested": [dict(rival.config) for rival in one.rivals],
                    }
                    for one in known
                ],
            }
        )
        return
    print_lines(listing(location, size, known))


def gc(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="Workloads not tuned for this long: 12h, 30d, 8w."
        ),
    ] = None,
    superseded: Annotated[
        bool,
        typer.Option("--superseded", help="Trials replaced by a later trial of the same config."),
    ] = False,
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel", metavar="NAME", help="Only this kernel; without other criteria, all of it."
        ),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size",
            metavar="SIZE",
            help="Remove superseded trials, then the workloads tuned longest ago, until the "
            "store fits: 500M, 2G.",
        ),
    ] = None,
    toolchain: Annotated[
        list[str] | None,
        typer.Option(
            "--toolchain",
            metavar="TOOL=VERSION",
            help="Only results built with this version: triton=3.5.",
        ),
    ] = None,
    other_toolchains: Annotated[
        bool,
        typer.Option(
            "--other-toolchains",
            help="Only results from versions that are neither installed here nor the newest.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Remove results.

    --kernel, --toolchain and --other-toolchains limit what the other options remove. Used alone,
    they remove everything that matches.
    """
    from whet.cli.arguments.reading import NothingKnownError, chosen, open_known
    from whet.cli.arguments.toolchains import of_toolchains
    from whet.cli.terminal.output import print_lines
    from whet.cli.text.store import swept

    if not (older_than or superseded or kernel or max_size or toolchain or other_toolchains):
        raise UsageError(
            "say what to remove: --older-than AGE, --superseded, --kernel NAME, --max-size "
            "SIZE, --toolchain TOOL=VERSION or --other-toolchains"
        )
    age = None if older_than is None else _seconds(older_than)
    size = None if max_size is None else _bytes(max_size)
    try:
        with open_known(store, read_only=dry_run, bundle=False) as opened:
            ids, said = None, list[str]()
            if toolchain or other_toolchains:
                ids, said = of_toolchains(opened, toolchain or [], other_toolchains)
            # By the column first: where rows are damaged, only the others can be asked for names.
            if kernel is not None and not opened.gc(kernel=kernel, dry_run=True).workloads:
                meant = {one.workload.id: one.workload.kernel for one in chosen(opened, kernel)}
                if kernel not in meant.values():  # another name of it, or one file's alone
                    ids = [id for id in meant if ids is None or id in ids]
                    kernel = None
            report = opened.gc(
                older_than_s=age,
                superseded=superseded,
                kernel=kernel,
                workloads=ids,
                max_bytes=size,
                dry_run=dry_run,
            )
    except NothingKnownError as nothing:
        print(nothing)
        return
    print_lines([*swept(report), *said])
    if size is not None and report.bytes_left > size and not dry_run:
        print(f"the store is still larger than {max_size}: nothing else can be removed")


def merge(
    others: Annotated[
        list[str], typer.Argument(metavar="OTHER", help="The stores to read.", show_default=False)
    ],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Add results from other stores.

    Results are only ever used for the device they were measured on. If two stores picked different
    configs for one workload, the pick changes only if both stores measured both configs and agree
    on which is faster. Otherwise this store's pick stays and is marked as contested; the next
    tuning run measures both side by side and decides.
    """
    from whet.cli.arguments.reading import check_there
    from whet.cli.terminal.output import print_json, print_lines
    from whet.cli.text.store import by_device, counts_text, namesakes, pick_lines
    from whet.store import open_store, store_place
    from whet.store.merging import arriving

    where = resolved(store=store).settings.store
    check_there(*others)
    if store_place(where) in map(store_place, others):
        raise UsageError(f"cannot merge {store_place(where)} into itself")
    said: list[str] = []
    merged = []
    with open_store(where, direct=True) as opened:
        for other in others:
            with open_store(other, read_only=True, direct=True) as source:
                new = arriving(opened, source)
                report = opened.merge(source)
            counts = counts_text(report.workloads, report.trials, report.runs)
            said += [f"{source.location}: {counts} new", *by_device(new)]
            said += pick_lines(report.picks)
            merged.append({"store": source.location, **_as_json(report)})
        said += [*namesakes(opened), f"saved in {opened.location}"]
    if json:
        print_json({"v": 1, "store": opened.location, "merged": merged})
    else:
        print_lines(said)


def _as_json(report: MergeReport) -> dict[str, Any]:
    from whet.cli.text.store import picks_json

    new = {"workloads": report.workloads, "trials": report.trials, "runs": report.runs}
    return {"new": new, "picks": picks_json(report.picks)}


def _seconds(age: str) -> float:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([smhdw])", age.strip().lower())
    if match is None:
        raise UsageError(f"--older-than '{age}' is not valid; use an age, such as 12h, 30d or 8w")
    return float(match[1]) * _UNITS[match[2]]


def _bytes(size: str) -> int:
    match = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", size.strip().upper())
    if match is None:
        raise UsageError(f"--max-size '{size}' is not valid; use a size, such as 500M or 2G")
    return int(float(match[1]) * _SIZES[match[2]])

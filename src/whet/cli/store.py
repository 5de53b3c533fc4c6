"""`whet store`: what is kept, what may go, and what others know."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import JsonOption, StoreOption, resolved
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.store import WorkloadSummary

ABOUT = "List what is kept, remove some of it, merge other stores in."
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
  whet store gc --older-than 90d --dry-run   what would go
  whet store gc --superseded                 results that newer ones replaced
  whet store gc --kernel matmul              everything about one kernel
"""
MERGE_EXAMPLES = """\b
Examples:
  whet store merge colleague.db
  whet store merge rank0.db rank1.db --store all.db
"""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def ls(store: StoreOption = None, json: JsonOption = False) -> None:
    """List the workloads that are known."""
    from whet.cli.output import print_json, print_lines
    from whet.cli.reading import NothingKnownError, open_known

    try:
        with open_known(store, bundle=False) as opened:
            location, known = opened.location, opened.workloads()
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
                    }
                    for one in known
                ],
            }
        )
        return
    print_lines(_listing(location, known))


def gc(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="Workloads not tuned for this long: 12h, 30d, 8w."
        ),
    ] = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Trials that a later one of the config replaced.")
    ] = False,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="NAME", help="Only of this kernel; alone, all of it."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Remove what is no longer wanted."""
    from whet.cli.output import bytes_text, count_text
    from whet.cli.reading import NothingKnownError, chosen, open_known

    if older_than is None and not superseded and kernel is None:
        raise UsageError("say what may go: --older-than AGE, --superseded or --kernel NAME")
    age = None if older_than is None else _seconds(older_than)
    try:
        with open_known(store, read_only=dry_run, bundle=False) as opened:
            if kernel is not None:
                kernel = chosen(opened, kernel)[0].workload.kernel
            report = opened.gc(
                older_than_s=age, superseded=superseded, kernel=kernel, dry_run=dry_run
            )
    except NothingKnownError as nothing:
        print(nothing)
        return
    what = ", ".join(
        (
            count_text(report.workloads, "workload"),
            count_text(report.trials, "trial"),
            count_text(report.runs, "run"),
        )
    )
    print(f"{'would remove' if dry_run else 'removed'} {what} ({bytes_text(report.bytes_freed)})")


def merge(
    others: Annotated[
        list[str], typer.Argument(metavar="OTHER", help="The stores to read.", show_default=False)
    ],
    store: StoreOption = None,
) -> None:
    """Add what other stores know."""
    from whet.cli.output import count_text
    from whet.cli.reading import store_place
    from whet.store import open_store

    where = resolved(store=store).settings.store
    for other in others:
        place = store_place(other)
        if not os.path.exists(place):
            raise UsageError(f"there is no store at {place}")
        if place == store_place(where):
            raise UsageError(f"{place} cannot be merged into itself")
    with open_store(where) as opened:
        for other in others:
            with open_store(other, read_only=True) as source:
                report = opened.merge(source)
            new = ", ".join(
                (
                    count_text(report.workloads, "workload"),
                    count_text(report.trials, "trial"),
                    count_text(report.runs, "run"),
                )
            )
            print(f"{source.location}: {new} new")
        print(f"kept in {opened.location}")


def _seconds(age: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", age.strip().lower())
    if match is None:
        raise UsageError(
            f"--older-than '{age}' cannot be read; write an age, such as 12h, 30d or 8w"
        )
    return float(match[1]) * _UNITS[match[2]]


def _listing(location: str, known: list[WorkloadSummary]) -> list[str]:
    from whet.cli.output import Column, bytes_text, columns, count_text, ns_text, table
    from whet.cli.reading import SHORT_ID, moment_text, problem_text

    size = bytes_text(os.path.getsize(location)) if os.path.isfile(location) else "in memory"
    lines = [location, f"{count_text(len(known), 'workload')}, {size}"]
    layout = [
        Column("id"),
        Column("workload", flexible=True),
        Column("configs", align="right"),
        Column("ok", align="right"),
        Column("trials", align="right"),
        Column("best", align="right"),
        Column("last tuned"),
    ]
    rows = [
        (
            one.workload.id[:SHORT_ID],
            problem_text(one.workload),
            f"{one.configs:,}",
            f"{one.ok:,}",
            f"{one.trials:,}",
            ns_text(one.median_ns),
            moment_text(one.active),
        )
        for one in known
    ]
    return [*lines, "", *table(layout, rows, columns())] if known else lines

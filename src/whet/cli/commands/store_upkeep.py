"""`whet store init`, `migrate`, `check` and `stats`: looking after a store."""

from __future__ import annotations

from typing import Annotated

import typer

from whet.cli.arguments.options import JsonOption, StoreOption, resolved

INIT_EXAMPLES = """\b
Examples:
  whet store init --store postgresql://db.example/whet?namespace=team
"""
MIGRATE_EXAMPLES = """\b
Examples:
  whet store migrate --store postgresql://db.example/whet?namespace=team
"""
GRANT_EXAMPLES = """\b
Examples:
  whet store grant reader serving --store postgresql://db.example/whet
  whet store grant contributor tuning --store postgresql://db.example/whet
  whet store grant promoter release --store postgresql://db.example/whet
"""
CHECK_EXAMPLES = """\b
Examples:
  whet store check
  whet store check --json | jq '.faults[]'
"""
STATS_EXAMPLES = """\b
Examples:
  whet store stats
  whet store stats --store postgresql://db.example/whet?namespace=team
"""


def init(store: StoreOption = None) -> None:
    """Create an empty store, if there is none yet."""
    from whet.store.upkeep import init_store

    found = init_store(resolved(store=store).settings.store)
    if found.before:
        print(f"store {found.location} is already there{_version_text(found.now)}")
    else:
        print(f"store {found.location} is ready{_version_text(found.now)}")


def migrate(store: StoreOption = None) -> None:
    """Upgrade a store to the schema of this version of whet.

    A store on a server is upgraded only by this command, so that nobody changes it for everybody
    by accident. A file is upgraded whenever it is opened for writing.
    """
    from whet.store.upkeep import migrate_store

    found = migrate_store(resolved(store=store).settings.store)
    if found.before == found.now:
        print(f"store {found.location} is up to date{_version_text(found.now)}")
    else:
        print(f"store {found.location} upgraded from schema version {found.before} to {found.now}")


def grant(
    level: Annotated[
        str, typer.Argument(metavar="reader|contributor|promoter", help="What the role may do.")
    ],
    role: Annotated[str, typer.Argument(metavar="ROLE", help="A role of the database.")],
    store: StoreOption = None,
) -> None:
    """Let a database role read, add or promote shared results.

    A reader cannot write. A contributor adds results and cannot change or remove any. A promoter
    decides what production uses, and adds no results. The database enforces this. Replaces what the
    role was allowed in this store before.
    """
    from whet.store.upkeep import grant_role

    location = grant_role(resolved(store=store).settings.store, level, role)
    print(f"role {role} is now a {level} of {location}")


def check(store: StoreOption = None, json: JsonOption = False) -> None:
    """Read every stored result and report damage.

    The exit code is 1 if anything is damaged.
    """
    from whet.cli.arguments.reading import open_known
    from whet.cli.terminal.output import print_json, print_lines
    from whet.store.upkeep import faults_in

    with open_known(store, bundle=False) as opened:
        location = opened.location
        faults = list(faults_in(opened))
    if json:
        print_json({"v": 1, "store": location, "faults": faults})
    else:
        print_lines(faults)
        count = len(faults)
        said = "no faults" if not count else "1 fault" if count == 1 else f"{count:,} faults"
        print(f"{location}: {said}")
    if faults:
        raise typer.Exit(1)


def stats(store: StoreOption = None, json: JsonOption = False) -> None:
    """Count what is stored, and for a shared store who contributed it."""
    from dataclasses import asdict

    from whet.cli.arguments.reading import moment_text, open_known
    from whet.cli.terminal.output import Column, bytes_text, columns, print_json, print_lines, table
    from whet.store import unsent
    from whet.store.upkeep import counts_of

    with open_known(store, bundle=False) as opened:
        found = counts_of(opened)
    here = unsent(store)
    if json:
        print_json(
            {
                "v": 1,
                "store": found.location,
                "workloads": found.workloads,
                "trials": found.trials,
                "runs": found.runs,
                "missed": found.missed,
                "bytes": found.size_bytes,
                "kernels": dict(found.kernels),
                "devices": dict(found.devices),
                "writers": [asdict(one) for one in found.writers],
                "unsent": {"waiting": here.waiting, "refused": list(here.refused)},
            }
        )
        return
    size = "" if found.size_bytes is None else f", {bytes_text(found.size_bytes)}"
    lines = [
        found.location,
        f"{found.workloads:,} workloads, {found.trials:,} trials, {found.runs:,} runs, "
        f"{found.missed:,} missed{size}",
    ]
    if here.waiting:
        lines.append(f"{here.waiting:,} entries of this host wait for the server")
    if here.refused:
        lines.append(
            f"{len(here.refused):,} were refused and are kept, to be sent again; the last:"
        )
        lines.append(f"  {here.refused[-1]}")
    for title, counts in (("kernel", found.kernels), ("device", found.devices)):
        layout = [Column(title, flexible=True), Column("workloads", align="right")]
        rows = [(name, f"{count:,}") for name, count in counts.items()]
        lines += ["", *table(layout, rows, columns())] if rows else []
    if found.writers:
        layout = [Column("written by", flexible=True), Column("trials", align="right")]
        layout += [Column("last")]
        writers = [(str(o.writer), f"{o.trials:,}", moment_text(o.last)) for o in found.writers]
        lines += ["", *table(layout, writers, columns())]
    print_lines(lines)


def _version_text(version: int | None) -> str:
    return "" if version is None else f" (schema version {version})"

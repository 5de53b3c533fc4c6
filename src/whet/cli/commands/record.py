"""`whet record`: a table of all that stores know of a kernel, to replay elsewhere."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from whet.core.errors import UsageError

EXAMPLES = """\b
Examples:
  whet tune kernel.py:matmul --search grid    measure every config first
  whet record matmul --out matmul-H200.whet.json.gz
  whet record 3fa2 91bc --out two.whet.json.gz      two workloads by their ids
  whet record matmul --store a.db --store b.db --out both.whet.json.gz
"""


def record(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|ID",
            help="A kernel's name (or FILE.py:NAME) for all its workloads, or how a workload's id "
            "starts.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="The table: NAME.whet.json.gz.")
    ],
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            metavar="PATH",
            help="Where results are kept. Given again, each store is a visit of its own.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a table of what was measured, for whet replay.

    It holds every trial, failures included, with its samples and the seconds of its build. All must
    be of one kernel as built by one toolchain for one device.
    """
    from whet.cli.arguments.reading import chosen, open_known
    from whet.cli.terminal.output import bytes_text, count_text
    from whet.replay import table_from_stores, write_table
    from whet.replay.files import SUFFIX, table_bytes

    if not out.endswith(SUFFIX):
        raise UsageError(f"--out {out} must end in {SUFFIX}, so that it is found as a table")
    places: list[str | None] = [*store] if store else [None]
    with ExitStack() as stack:
        opened = [stack.enter_context(open_known(one, bundle=False)) for one in places]
        workloads = {
            one.workload.id: one.workload
            for known in opened
            for name in names
            for one in chosen(known, name)
        }
        table = table_from_stores(opened, workloads=list(workloads.values()))
    write_table(table, out)
    size = bytes_text(len(table_bytes(table)))
    parts = [count_text(len(table.configs), "config"), count_text(len(table.workloads), "workload")]
    print(f"{out}: {table.kernel} on {table.device.name}, {' × '.join(parts)}, {size}")
    untried = sum(
        table.status(one, at) is None for one in table.workloads for at in range(len(table.configs))
    )
    if untried:
        print(
            f"whet: note: {count_text(untried, 'pair')} of config and workload was never tried; "
            "'whet tune --search grid' tries all",
            file=sys.stderr,
        )

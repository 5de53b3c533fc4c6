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
  whet record 3fa2 91bc --out two.whet.json.gz      two workloads, by id
  whet record matmul --store a.db --store b.db --out both.whet.json.gz
"""


def record(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|ID",
            help="A kernel name (or FILE.py:NAME) for all its workloads, or the start of a "
            "workload id.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="Output file: NAME.whet.json.gz.")
    ],
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            metavar="PATH",
            help="Where results are stored; if repeated, each store is a separate visit.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write stored measurements to a table for 'whet replay'.

    The table holds every trial, failures included, with its samples and build time. All trials
    must be for one kernel, one toolchain and one device.
    """
    from whet.cli.arguments.reading import chosen, open_known
    from whet.cli.terminal.output import bytes_text, count_text, print_lines
    from whet.replay import table_from_stores, write_table
    from whet.replay.files import SUFFIX, table_bytes

    if not out.endswith(SUFFIX):
        raise UsageError(f"--out {out} must end in {SUFFIX}")
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
    print_lines([f"{out}: {table.kernel} on {table.device.name}, {' × '.join(parts)}, {size}"])
    untried = sum(
        table.status(one, at) is None for one in table.workloads for at in range(len(table.configs))
    )
    if untried:
        print(
            f"whet: note: {count_text(untried, 'pair')} of config and workload never tried; "
            "'whet tune --search grid' tries all",
            file=sys.stderr,
        )

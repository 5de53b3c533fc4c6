"""`whet report`: results as one file for the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments.options import QuietOption, StoreOption
from whet.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from whet.explorer.library import Library
    from whet.explorer.subject import Subject

EXAMPLES = """\b
Examples:
  whet report out.html               everything in the store
  whet report out.html matmul        one kernel
  whet report out.html --sample      the tables that come with whet
"""


def report(
    out: Annotated[
        str, typer.Argument(metavar="OUT.html", help="The file to write.", show_default=False)
    ],
    kernels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KERNEL...",
            help="Kernel names, or the start of workload ids (default: all).",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Use the tables that come with whet, not the store.")
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="FILE|NAME", help="Also use a recorded table (repeatable)."
        ),
    ] = None,
    store: StoreOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write results to one HTML file that needs no server.

    The file has the views of 'whet explore' and opens from disk, without a network.
    """
    from whet.cli.arguments.exploring import library_of
    from whet.cli.terminal.countdown import Countdown
    from whet.cli.terminal.output import bytes_text, count_text
    from whet.explorer.report import write_report

    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{out} must end in .html")
    library = library_of(store, sample=sample, tables=table or ())
    chosen = _chosen(library, kernels or ())
    size = write_report(library, path, chosen, None if quiet else Countdown("workloads"))
    workloads = count_text(len(chosen), "workload")
    print(f"wrote {out}: {workloads}, {bytes_text(size)}; open it in any browser")


def _chosen(library: Library, kernels: list[str] | tuple[str, ...]) -> list[Subject]:
    every = library.subjects()
    if not every:
        raise UsageError(
            f"nothing to report: {library.about()['store']} has no results; tune something first, "
            "or use --sample"
        )
    names = {subject.workload.kernel for subject in every}
    for wanted in kernels:
        if wanted not in names and not any(one.id.startswith(wanted) for one in every):
            raise UsageError(
                f"no results for kernel or workload '{wanted}'{did_you_mean(wanted, names)}"
            )
    if not kernels:
        return every
    return [
        one
        for one in every
        if one.workload.kernel in kernels or any(one.id.startswith(wanted) for wanted in kernels)
    ]

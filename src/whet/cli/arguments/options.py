"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.terminal.help import SEARCHES

if TYPE_CHECKING:
    from whet.engine.settings import ResolvedSettings

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="PATH", help="Where results are kept: a path, or a plugin's NAME://…"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs to read.")]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget", metavar="BUDGET", help="When to stop: 30s, 5m, 200trials or 1h,500trials."
    ),
]
SeedOption = Annotated[
    str | None,
    typer.Option("--seed", metavar="N", help="The same seed asks for the same configs."),
]
JobsOption = Annotated[
    str | None,
    typer.Option("--jobs", metavar="N", help="How many builds at once (default: usable cores)."),
]
SearchOption = Annotated[
    str | None,
    typer.Option(
        "--search", metavar="NAME", help=f"The search strategy (default: auto): {SEARCHES}."
    ),
]
L2Option = Annotated[
    str | None,
    typer.Option(
        "--l2", metavar="cold|warm", help="A GPU's L2 cache before each timed launch (cold)."
    ),
]
L2BytesOption = Annotated[
    str | None,
    typer.Option(
        "--l2-bytes",
        metavar="N",
        help="How much is read to clear the L2: 64M; 0 is off (default: the L2's size).",
    ),
]
CudaGraphOption = Annotated[
    bool, typer.Option("--cuda-graph", help="Time launches as CUDA graphs, for a slow host.")
]
IsolateOption = Annotated[
    bool,
    typer.Option("--isolate", help="Run a GPU's configs in a process that may crash or hang."),
]
SamplesOption = Annotated[
    str | None,
    typer.Option(
        "--samples", metavar="N", help="No race: so many samples of every config, for a table."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def resolved(**flags: Any) -> ResolvedSettings:
    """The settings under these flags; what a person should know of them goes to stderr."""
    from whet.engine.settings import resolve_settings

    found = resolve_settings(flags)
    for note in found.notes:
        print(f"whet: note: {note}", file=sys.stderr)
    return found

"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.terminal.help import SEARCHES
from whet.cli.terminal.output import say

if TYPE_CHECKING:
    from whet.engine.settings import ResolvedSettings

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="Where results are stored: a path, postgresql://…, or NAME://… of a plugin.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget", metavar="BUDGET", help="When to stop: 30s, 5m, 200trials or 1h,500trials."
    ),
]
SeedOption = Annotated[
    str | None,
    typer.Option("--seed", metavar="N", help="Random seed; the same seed tries the same configs."),
]
JobsOption = Annotated[
    str | None,
    typer.Option("--jobs", metavar="N", help="Number of parallel builds (default: usable cores)."),
]
SearchOption = Annotated[
    str | None,
    typer.Option("--search", metavar="NAME", help=f"Search strategy (default: auto): {SEARCHES}."),
]
EffortOption = Annotated[
    str | None,
    typer.Option(
        "--effort",
        metavar="full|quick",
        help="Try every config, or leave out those that are not expected to be worth their builds "
        "(default: full).",
    ),
]
L2Option = Annotated[
    str | None,
    typer.Option(
        "--l2", metavar="cold|warm", help="L2 cache before each timed launch (default: cold)."
    ),
]
L2BytesOption = Annotated[
    str | None,
    typer.Option(
        "--l2-bytes",
        metavar="N",
        help="Bytes to read to flush the L2, such as 64M; 0 disables (default: the size of the "
        "L2).",
    ),
]
CudaGraphOption = Annotated[
    bool, typer.Option("--cuda-graph", help="Time launches as CUDA graphs, for a slow host.")
]
IsolateOption = Annotated[
    bool,
    typer.Option(
        "--isolate", help="Measure GPU configs in a separate process that may crash or hang."
    ),
]
KeepIrOption = Annotated[
    bool,
    typer.Option(
        "--keep-ir", help="Keep the intermediate code of every config, for 'whet explore'."
    ),
]
SamplesOption = Annotated[
    str | None,
    typer.Option(
        "--samples",
        metavar="N",
        help="Take N samples of every config instead of racing, to record a table.",
    ),
]
NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME|ID",
        help="A kernel name, the name it was tuned under, FILE.py:NAME, or the start of a "
        "workload id (default: the most recent).",
        show_default=False,
    ),
]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table", metavar="FILE|NAME", help="A recorded table, or a shipped one, not the store."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on stderr.")]


def resolved(**flags: Any) -> ResolvedSettings:
    """The settings under these flags; what a person should know of them goes to stderr."""
    from whet.engine.settings import resolve_settings

    found = resolve_settings(flags)
    for note in found.notes:
        say(f"whet: note: {note}")
    return found

"""`whet show`: what is known of a kernel or a workload, from several sides."""

from __future__ import annotations

from typing import Annotated

import typer

from whet.cli.arguments.options import NAMED, JsonOption, StoreOption, TableOption, argument, option
from whet.cli.terminal.help import refuse_others
from whet.core.errors import UsageError, did_you_mean

VIEWS = ("trials", "space", "history", "cost")


def show(
    context: typer.Context,
    view: Annotated[
        str | None, argument("VIEW", "trials, space, history or cost (default: an overview).")
    ] = None,
    name: Annotated[
        str | None,
        argument(
            "KERNEL|ID",
            f"{NAMED} (default: the most recent workload). For the overview also MODULE:NAME.",
        ),
    ] = None,
    status: Annotated[
        list[str] | None,
        option("--status STATUS", "Only this status: ok, build_error, … (repeatable).", "trials"),
    ] = None,
    every: Annotated[
        bool,
        option("--all", "Include superseded trials, not only the latest of each config.", "trials"),
    ] = False,
    limit: Annotated[
        int | None,
        option(
            "--limit N",
            "Show at most N measured and N failed trials; 0 shows all (default: 20; all with "
            "--json).",
            min=0,
            panel="trials",
        ),
    ] = None,
    x: Annotated[str | None, option("--x PARAMETER", "The parameter across.", "space")] = None,
    y: Annotated[str | None, option("--y PARAMETER", "The parameter down.", "space")] = None,
    run: Annotated[
        str | None, option("--run RUN_ID", "A run id, or the start of one.", "history, cost")
    ] = None,
    top: Annotated[
        int | None,
        option(
            "--top N",
            "Show at most N configs and N keys; 0 shows all (default: 10; all with --json).",
            min=0,
            panel="cost",
        ),
    ] = None,
    timeline: Annotated[
        str | None,
        option(
            "--timeline FILE", "Write a timeline for ui.perfetto.dev instead of the report.", "cost"
        ),
    ] = None,
    table: TableOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show a kernel or a workload: an overview, its trials, space, history or cost.

    The overview of a kernel has its source, where it was met, keys, what Triton compiles it for,
    the policy that applies, picks and costs; that of a workload its best, failures, space and
    search. 'trials' lists configs, fastest first, and failures with their reasons. 'space' is a
    heat map of two parameters, each cell the fastest config with these values in per cent of the
    fastest of all. 'history' draws how tuning runs converged, by evaluations and by time. 'cost'
    shows where tuning time went, and what was saved.

    Examples:
      whet show                         the most recent workload
      whet show matmul                  what is known of a kernel
      whet show trials matmul           its configs and their times
      whet show trials matmul --status build_error   what did not compile
      whet show space matmul --x BM --y num_warps
      whet show space --table h200-gemm-576          a table that comes with whet
      whet show history matmul          how the runs found their best
      whet show cost matmul --top 30    with the 30 most expensive configs
      whet show cost 3fa2 --timeline t.json          for ui.perfetto.dev

    A kernel with the name of a view is shown by FILE.py:NAME, or by its id.
    """
    if view is not None and view not in VIEWS:
        if name is not None:
            raise UsageError(f"whet show has no view '{view}'{did_you_mean(view, VIEWS)}")
        view, name = None, view
    refuse_others(context, view or "")
    if table is not None and view not in (None, "space"):
        raise UsageError(f"--table is not for whet show {view}, which reads a store")
    if view == "trials":
        from whet.cli.commands.trials import trials

        trials(name, status or (), every, limit, store, json)
    elif view == "cost":
        from whet.cli.commands.cost import cost

        cost(name, run, top, timeline, store, json)
    else:
        from whet.cli.commands import drawings

        if view == "space":
            drawings.space(name, x, y, table, store, json)
        elif view == "history":
            drawings.history(name, run, store, json)
        else:
            drawings.overview(name, table, store, json)

"""`whet history`: how runs came to their best config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, NameArgument, StoreOption

if TYPE_CHECKING:
    from whet.core.run import Run

EXAMPLES = """\b
Examples:
  whet history matmul            the runs, and how the last one found its best
  whet history matmul --run 3fa2
"""

SHOWN = 8


def history(
    name: NameArgument = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN_ID", help="A run id, or the start of one."),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Draw how tuning runs converged, by evaluations and by time."""
    from whet.cli.arguments.looking import looked_at
    from whet.cli.terminal.output import page, print_json, print_lines
    from whet.cli.text.drawings import curves_of, run_lines
    from whet.core.errors import UsageError
    from whet.explorer.drawings import Convergence

    found = looked_at(name, store, None)
    runs = [one for one in found.subject.runs() if run is None or one.id.startswith(run)]
    if not runs:
        what = "no tuning run" if run is None else f"no run has an id starting with '{run}'"
        raise UsageError(f"{what} of {found.subject.workload.kernel} in the store")
    trials = found.subject.read().columns
    curves = {one.id: Convergence.of(trials, trials.rows_of_run(one.id)) for one in runs}
    if json:
        told = [_json(one, curves[one.id]) for one in runs]
        print_json({"v": 1, "workload": found.subject.workload.to_json(), "runs": told})
        return
    lines = [*found.title, "", *run_lines(runs[:SHOWN], page())]
    if len(runs) > SHOWN:
        lines.append(f"and {len(runs) - SHOWN} earlier ones")
    drawn = next((one for one in runs if curves[one.id].final_ns is not None), None)
    if drawn is not None:
        lines += ["", *curves_of(drawn, curves[drawn.id], page())]
    print_lines([*lines, *found.further])


def _json(run: Run, curve: Any) -> dict[str, Any]:
    import math

    return {
        "id": run.id,
        "search": run.search,
        "outcome": str(run.outcome),
        "started": run.started,
        "wall_s": run.wall_s,
        "seconds": list(curve.seconds),
        "best_ns": [None if math.isnan(ns) else ns for ns in curve.best_ns],
    }

"""`whet space`: a heat map of two parameters in the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from whet.cli.arguments.options import JsonOption, NameArgument, StoreOption, TableOption

EXAMPLES = """\b
Examples:
  whet space matmul                      the two parameters that matter most
  whet space matmul --x BM --y num_warps
  whet space --table h200-gemm-576       a table that comes with whet
"""


def space(
    name: NameArgument = None,
    x: Annotated[
        str | None, typer.Option("--x", metavar="PARAMETER", help="The parameter across.")
    ] = None,
    y: Annotated[
        str | None, typer.Option("--y", metavar="PARAMETER", help="The parameter down.")
    ] = None,
    table: TableOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Draw a heat map of two parameters.

    Every cell is the fastest config with these two values, in per cent of the fastest of all.
    """
    from whet.cli.arguments.looking import looked_at, readable
    from whet.cli.terminal.output import columns, print_json, print_lines
    from whet.cli.terminal.painting import painter
    from whet.cli.text.drawings import grid_json
    from whet.explorer.drawings import grid_of, heat_lines, places_for

    found = looked_at(name, store, table)
    trials = found.subject.read().columns
    grid = grid_of(trials, x, y, most=places_for(columns()))
    if json:
        print_json({"v": 1, "workload": found.subject.workload.to_json(), "space": grid_json(grid)})
        return
    print_lines([*found.title, ""])
    if grid is None:
        print("no two configs were tried that differ")
    else:
        for line in heat_lines(readable(grid), columns(), painter()):
            print(line)
    print_lines(found.further)

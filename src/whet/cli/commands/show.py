"""`whet show`: one workload at a glance, in the terminal."""

from __future__ import annotations

from whet.cli.arguments.options import JsonOption, NameArgument, StoreOption, TableOption

EXAMPLES = """\b
Examples:
  whet show                    the most recent workload
  whet show matmul
  whet show --table h200-gemm-576
"""


def show(
    name: NameArgument = None,
    table: TableOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show one workload: its best, failures, space and search.

    'whet explore' has the same in the browser.
    """
    from whet.cli.arguments.looking import looked_at
    from whet.cli.terminal.output import print_json, print_lines
    from whet.cli.text.drawings import show_lines
    from whet.explorer.importance import importance

    found = looked_at(name, store, table)
    trials = found.subject.read().columns
    told = found.subject.summary()
    if json:
        print_json({"v": 1, "workload": told, "importance": importance(trials)})
        return
    print_lines([*found.title, ""])
    for line in show_lines(found.subject, told):
        print(line)
    print_lines(found.further)

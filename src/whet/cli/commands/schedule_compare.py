"""`whet schedule compare`: schedules side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import BudgetOption, JsonOption, StoreOption, resolved
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\b
Examples:
  whet schedule compare kernel.py:tiled :fused        two names of one file
  whet schedule compare kernel.py:mine other.py:mine --budget 30s
  whet schedule compare kernel.py:a :b --json     with the IR before and after
"""


def compare(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.py:NAME", help="Two or more; ':NAME' is one of the same file."
        ),
    ],
    budget: BudgetOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Tune schedules one after another and say what each amounts to."""
    from whet.cli.commands.schedule import located_schedule
    from whet.cli.terminal.output import print_json
    from whet.targets.schedule.comparing import compared

    if len(what) < 2:
        raise UsageError("give two schedules or more to compare")
    settings = resolved(budget=budget, store=store).settings
    rows = [compared(located_schedule(one), settings) for one in _completed(what)]
    if json:
        print_json({"v": 1, "schedules": [vars(one) for one in rows]})
        return
    _print(rows)


def _completed(texts: Sequence[str]) -> list[str]:
    """`a.py:x :y` is `a.py:x a.py:y`."""
    made: list[str] = []
    for text in texts:
        if text.startswith(":") and not made:
            raise UsageError(f"'{text}' names no file; give FILE.py:NAME first")
        file = made[-1].rpartition(":")[0] if text.startswith(":") else ""
        made.append(file + text)
    return made


def _print(rows: Sequence[Any]) -> None:
    from whet.cli.terminal.output import ns_text, page, wrap

    slowest = max(one.median_ns for one in rows)
    width = max(len(one.name) for one in rows)
    for one in rows:
        times = slowest / one.median_ns
        print(f"{one.name:<{width}}  {ns_text(one.median_ns):>8}  {times:6.2f}×  {one.config}")
        for line in wrap(one.insight, page() - width - 2):
            print(" " * (width + 2) + line)

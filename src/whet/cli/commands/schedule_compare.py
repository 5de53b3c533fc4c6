"""`whet schedule compare`: schedules side by side."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments.options import BudgetOption, JsonOption, StoreOption, resolved
from whet.cli.commands.schedule import PayloadOption
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whet.targets.schedule.comparing import ComparedSchedule
    from whet.targets.schedule.target import ScheduleTarget

EXAMPLES = """\b
Examples:
  whet schedule compare kernel.py:tiled :fused        two names of one file
  whet schedule compare kernel.py:mine other.py:mine --budget 30s
  whet schedule compare a.mlir b.mlir --payload 'matmul(256, 256, 256)'
  whet schedule compare kernel.py:a :b --explore  look at them in the browser
  whet schedule compare kernel.py:a :b --json     with the IR before and after
"""
# So many stand beside each other on the page.
_SHOWN = 3


def compare(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT.mlir|FILE.py:NAME",
            help="Two or more; ':NAME' is one of the same file, a script needs --payload.",
        ),
    ],
    payload: PayloadOption = None,
    explore: Annotated[
        bool, typer.Option("--explore", help="Then show them side by side in the browser.")
    ] = False,
    budget: BudgetOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Tune schedules, measure the best of each in turns, and say what it amounts to."""
    from whet.cli.commands.explore import check_installed
    from whet.cli.terminal.output import print_json
    from whet.store import ir_folder
    from whet.targets.schedule.comparing import compared

    if len(what) < 2:
        raise UsageError("give two schedules or more to compare")
    settings = resolved(budget=budget, store=store).settings
    if explore:
        check_installed()
        if ir_folder(settings.store) is None:
            raise UsageError("this store cannot keep programs to look at; use one that is a file")
    rows = compared([_located(one, payload) for one in _completed(what)], settings)
    if json:
        print_json({"v": 1, "schedules": [vars(one) for one in rows]})
    else:
        _print(rows, _labels(what, rows))
    link = _link(rows)
    if explore:
        _explore(store, link)
    elif link and not json:
        print("\nto see them side by side, add --explore, or open in whet explore:")
        print(link)


def _completed(texts: Sequence[str]) -> list[str]:
    """`a.py:x :y` is `a.py:x a.py:y`."""
    made: list[str] = []
    for text in texts:
        if text.startswith(":") and not made:
            raise UsageError(f"'{text}' names no file; give FILE.py:NAME first")
        file = made[-1].rpartition(":")[0] if text.startswith(":") else ""
        made.append(file + text)
    return made


def _located(what: str, payload: str | None) -> ScheduleTarget:
    from whet.cli.commands.schedule import located_schedule, scripted

    if not what.endswith(".mlir"):
        return located_schedule(what)
    if payload is None:
        raise UsageError(f"{what}: say what it is applied to with --payload")
    return scripted(what, payload, name=Path(what).stem)


def _labels(texts: Sequence[str], rows: Sequence[ComparedSchedule]) -> list[str]:
    """Their names; what was typed where two have the same name."""
    counts = Counter(one.name for one in rows)
    return [
        one.name if counts[one.name] == 1 else text
        for one, text in zip(rows, _completed(texts), strict=True)
    ]


def _print(rows: Sequence[ComparedSchedule], labels: Sequence[str]) -> None:
    from whet.cli.terminal.output import ns_text, page, wrap

    slowest = max(one.median_ns for one in rows)
    width = max(map(len, labels))
    for label, one in zip(labels, rows, strict=True):
        times = slowest / one.median_ns
        print(f"{label:<{width}}  {ns_text(one.median_ns):>8}  {times:6.2f}×  {one.config}")
        for line in wrap(one.insight, page() - width - 2):
            print(" " * (width + 2) + line)


def _link(rows: Sequence[ComparedSchedule]) -> str:
    """Where the page has them, as far as the store could keep their programs."""
    kept = [one.workload for one in rows if one.kept]
    shown = list(dict.fromkeys(kept))[:_SHOWN]
    if len(shown) < 2:
        return ""
    return "#compare?" + "&".join(f"{name}={id}" for name, id in zip("wbc", shown, strict=False))


def _explore(store: str | None, link: str) -> None:
    from whet.cli.arguments.exploring import library_of
    from whet.cli.commands.explore import serve_library

    serve_library(library_of(store), link=link)

"""`whet best`: the best known config, without tuning anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from whet.store import WorkloadSummary

EXAMPLES = """\b
Examples:
  whet best                    the best of everything that was ever tuned
  whet best matmul             the best of one kernel
  whet best 3fa2               the best of the workload whose id starts so
  whet best matmul --json | jq '.best[0].config'
"""


def best(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="KERNEL|ID",
            help="A kernel's name, or how a workload's id starts (default: everything).",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show the best known config."""
    from whet.cli.output import columns, print_json, print_lines
    from whet.cli.reading import NothingKnownError, best_table, chosen, open_known

    try:
        with open_known(store) as opened:
            known, place = chosen(opened, name), opened.location
    except NothingKnownError:
        if json:
            print_json({"v": 1, "best": []})
        raise
    working = [one for one in known if one.best is not None]
    if json:
        print_json({"v": 1, "best": [_as_json(one) for one in working]})
    elif len(known) == 1 and working:
        print_lines(_details(known[0]))
    elif working:
        print_lines(best_table(known, columns()))
    if not working:
        raise NothingKnownError(f"no config of {known[0].workload.kernel} is known to work", place)


def _as_json(one: WorkloadSummary) -> dict[str, Any]:
    assert one.best is not None
    timing = one.best.timing
    return {
        "workload": one.workload.to_json(),
        "config": dict(one.best.config),
        "config_id": one.best.config.id,
        "median_ns": one.best.median_ns,
        "interval_ns": None if timing is None else timing.interval_ns,
        "samples": 0 if timing is None else len(timing.samples),
        "created": one.best.created,
    }


def _details(one: WorkloadSummary) -> list[str]:
    from whet.cli.output import count_text, fields, page, wrap
    from whet.cli.reading import moment_text
    from whet.cli.summary import timing_text

    assert one.best is not None
    width = page()
    parts = {
        "best": [str(one.best.config), timing_text(one.best)],
        "measured": moment_text(one.best.created),
        "tried": count_text(one.configs, "config"),
        "id": one.workload.id,
    }
    return [*wrap(str(one.workload), width, indent=2), "", *fields(parts, width)]

"""`whet best`: the best known config, without tuning anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from whet.core.coverage import Coverage
    from whet.core.run import Run
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
    from whet.cli.reading import NothingKnownError, best_table, chosen, coverage_of, open_known

    try:
        with open_known(store) as opened:
            known, place = chosen(opened, name), opened.location
            working = [one for one in known if one.best is not None]
            runs = {one.workload.id: opened.runs(one.workload.id) for one in known}
    except NothingKnownError:
        if json:
            print_json({"v": 1, "best": []})
        raise
    covered = {one.workload.id: coverage_of(runs[one.workload.id], one.configs) for one in known}
    if json:
        told = [_as_json(one, runs[one.workload.id], covered[one.workload.id]) for one in working]
        print_json({"v": 1, "best": told})
    elif len(known) == 1 and working:
        (one,) = known
        print_lines(_details(one, runs[one.workload.id], covered[one.workload.id]))
    elif working:
        print_lines(best_table(known, covered, columns()))
    if not working:
        raise NothingKnownError(f"no config of {known[0].workload.kernel} is known to work", place)


def _chosen_by(runs: Sequence[Run], one: WorkloadSummary) -> Run | None:
    """The run whose choice the best config is; None where it is merely the fastest that is known,
    since no run has finished."""
    from whet.core.run import Outcome

    assert one.best is not None
    finished = (run for run in runs if run.outcome is Outcome.FINISHED)
    newest = next((run for run in finished if run.best is not None), None)
    return newest if newest is not None and newest.best == one.best.config else None


def _as_json(
    one: WorkloadSummary, runs: Sequence[Run], coverage: Coverage | None
) -> dict[str, Any]:
    assert one.best is not None
    run = _chosen_by(runs, one)
    timing = one.best.timing
    return {
        "workload": one.workload.to_json(),
        "config": dict(one.best.config),
        "config_id": one.best.config.id,
        "median_ns": one.best.median_ns,
        "interval_ns": None if timing is None else timing.interval_ns,
        "samples": 0 if timing is None else len(timing.samples),
        "created": one.best.created,
        "run": None if run is None else run.id,
        "coverage": None if coverage is None else coverage.to_json(),
    }


def _details(one: WorkloadSummary, runs: Sequence[Run], coverage: Coverage | None) -> list[str]:
    from whet.cli.output import count_text, fields, page, wrap
    from whet.cli.reading import device_text, moment_text, toolchain_text
    from whet.cli.summary import timing_text

    assert one.best is not None
    width = page()
    parts = {
        "best": [str(one.best.config), timing_text(one.best)],
        "from": _origin(_chosen_by(runs, one)),
        "measured": moment_text(one.best.created),
        "device": device_text(one.workload.device),
        "built by": toolchain_text(one.workload.toolchain) or "unknown tools",
        "space": count_text(one.configs, "config") if coverage is None else coverage.lines,
        "id": one.workload.id,
    }
    return [*wrap(str(one.workload), width, indent=2), "", *fields(parts, width)]


def _origin(run: Run | None) -> str:
    from whet.cli.output import count_text
    from whet.cli.reading import moment_text

    if run is None:
        return "the lowest median that is known; no tuning that chose it has finished"
    trials = count_text(run.trials, "trial")
    return f"the tuning of {moment_text(run.started)} ({run.search}, {trials})"

"""`whet best`: the best known config, without tuning anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from whet.core.coverage import Coverage
    from whet.core.run import Run
    from whet.store import WorkloadSummary

EXAMPLES = """\b
Examples:
  whet best                    the best config of every workload
  whet best matmul             the best of one kernel
  whet best kernel.py:matmul   if several files have a kernel of that name
  whet best 3fa2               the best of the workload with this id
  whet best matmul --json | jq '.best[0].config'
"""

_CONTESTED = (
    "contested: a merged store picked another config, and the stores disagree on which is "
    "faster; tune again to decide. The other pick:"
)


def best(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|ID",
            help="A kernel name, the name it was tuned under, FILE.py:NAME, or the start of a "
            "workload id (default: everything).",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show the best known config."""
    from whet.cli.arguments.reading import (
        NothingKnownError,
        best_table,
        chosen,
        contested_lines,
        coverage_of,
        open_known,
    )
    from whet.cli.terminal.output import columns, print_json, print_lines

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
        print_lines(contested_lines(known, columns()))
    if not working:
        raise NothingKnownError(f"no working config of {known[0].workload.kernel} is known", place)


def _chosen_by(runs: Sequence[Run], one: WorkloadSummary) -> Run | None:
    """The run whose choice the best config is; None where it is merely the fastest that is known,
    since no run has finished."""
    assert one.best is not None
    chose = [run for run in runs if run.chose]
    if not any(run.taken for run in chose):
        chose = chose[:1]  # of one store's runs the newest counts
    return next((run for run in chose if run.best == one.best.config), None)


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
        "contested": [
            {"config": dict(rival.config), "median_ns": rival.median_ns} for rival in one.rivals
        ],
        "coverage": None if coverage is None else coverage.to_json(),
    }


def _details(one: WorkloadSummary, runs: Sequence[Run], coverage: Coverage | None) -> list[str]:
    from whet.cli.arguments.reading import device_text, moment_text, toolchain_text
    from whet.cli.terminal.output import count_text, fields, page, wrap
    from whet.cli.text.summary import timing_text

    assert one.best is not None
    width = page()
    contested = [f"[{rival.config}] {timing_text(rival)}" for rival in one.rivals]
    parts: dict[str, str | list[str]] = {
        "best": [str(one.best.config), timing_text(one.best)],
        **({"contested": [_CONTESTED, *contested]} if contested else {}),
        "from": _origin(_chosen_by(runs, one)),
        "measured": moment_text(one.best.created),
        "device": device_text(one.workload.device),
        "built by": toolchain_text(one.workload.toolchain) or "unknown tools",
        **({"source": list(one.workload.origin.places)} if one.workload.origin.places else {}),
        "space": count_text(one.configs, "config") if coverage is None else coverage.lines,
        "id": one.workload.id,
    }
    return [
        *wrap(str(one.workload), width, indent=2),
        "",
        *fields(parts, width, 11 if contested else 9),
    ]


def _origin(run: Run | None) -> str:
    from whet.cli.arguments.reading import moment_text
    from whet.cli.terminal.output import count_text

    if run is None:
        return "the lowest known median; no tuning run that chose it has finished"
    how = "all configs tried" if run.exhaustive else f"{count_text(run.trials, 'config')} tried"
    return f"the tuning run of {moment_text(run.started)} ({run.search}, {how})"

"""What `whet space`, `whet history` and `whet show` draw and say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whet.cli.arguments.looking import readable
from whet.cli.arguments.reading import moment_text
from whet.cli.terminal.output import (
    Column,
    columns,
    count_text,
    fields,
    ns_text,
    page,
    printable,
    seconds_text,
    shorten,
    table,
    times_text,
)
from whet.cli.terminal.painting import painter
from whet.core.config import Config
from whet.core.run import Run
from whet.explorer.columns import STATUSES, TrialColumns
from whet.explorer.drawings import (
    Convergence,
    HeatGrid,
    bars,
    curve_lines,
    grid_of,
    heat_lines,
    places_for,
)
from whet.explorer.importance import importance
from whet.explorer.subject import Subject

MOST_REASONS, MOST_PARAMETERS = 3, 8


def grid_json(grid: HeatGrid | None) -> dict[str, Any] | None:
    if grid is None:
        return None
    return {
        "x": {"parameter": grid.x.name, "values": list(grid.x.places)},
        "y": {"parameter": grid.y.name, "values": list(grid.y.places)},
        "best_over": list(grid.others),
        "best_ns": grid.best_ns,
        "cells": [
            [{"ns": cell.ns, "tried": cell.tried, "failed": cell.failed or None} for cell in row]
            for row in grid.cells
        ],
    }


def run_lines(runs: Sequence[Run], width: int) -> list[str]:
    layout = [
        Column("run"),
        Column("started"),
        Column("search"),
        Column("outcome"),
        Column("trials", align="right"),
        Column("took", align="right"),
        Column("best", flexible=True),
    ]
    rows = [
        (
            run.id[:8],
            moment_text(run.started),
            run.search,
            str(run.outcome),
            f"{run.trials:,}",
            seconds_text(run.wall_s),
            "–" if run.best is None else str(run.best),
        )
        for run in runs
    ]
    return table(layout, rows, width)


def curves_of(run: Run, curve: Convergence, width: int) -> list[str]:
    """By evaluations, then by seconds."""
    assert curve.final_ns is not None
    best = ns_text(curve.final_ns)
    return [
        f"run {run.id[:8]}: the best so far, in % of {best}",
        *curve_lines(curve, curve.final_ns, width),
        "",
        *curve_lines(curve, curve.final_ns, width, by_seconds=True),
    ]


def show_lines(subject: Subject, told: Mapping[str, Any]) -> list[str]:
    """Everything that could quote a stranger's file is made printable here, since cells may have
    colours of their own."""
    trials = subject.read().columns
    width = page()
    lines = [printable(line) for line in fields(_facts(trials, told), width)]
    found = [(one["parameter"], one["share"]) for one in importance(trials)]
    if found:
        shown = [(printable(name), share) for name, share in found[:MOST_PARAMETERS]]
        lines += ["", "what matters: the share of the spread in time that a parameter explains"]
        lines += bars(shown, width)
    grid = grid_of(trials, most=places_for(columns()))
    if grid is not None:
        lines += ["", *heat_lines(readable(grid), columns(), painter())]
    run = next(iter(subject.runs()), None)
    if run is not None:
        curve = Convergence.of(trials, trials.rows_of_run(run.id))
        if curve.final_ns is not None:
            lines += ["", f"run {run.id[:8]}: the best so far, in % of {ns_text(curve.final_ns)}"]
            lines += curve_lines(curve, curve.final_ns, width, height=5)
    return lines


def _facts(trials: TrialColumns, told: Mapping[str, Any]) -> dict[str, str | list[str]]:
    best, first = told["best"], told["first"]
    facts: dict[str, str | list[str]] = {"id": str(told["id"])}
    if best is None:
        facts["best"] = "no working config yet"
    else:
        facts["best"] = [str(Config(best["config"])), _sure(best)]
    if first is not None and first["ns"] is not None and told["speedup"] is not None:
        how = "side by side, " if told["paired"] else ""
        faster = f"{how}the best is {times_text(told['speedup'])} as fast"
        facts["first"] = f"{ns_text(first['ns'])}; {faster}"
    if told["equals"]:
        facts["equal"] = f"{count_text(told['equals'], 'config')} cannot be told from it"
    if best is not None and told["roofline_ns"]:
        share = told["roofline_ns"] / best["ns"]
        facts["roofline"] = f"{100 * share:.0f} % of what the device could do at its peak"
    counts = ", ".join(f"{count:,} {status}" for status, count in told["trials"].items())
    product = f" of {told['space_product']}" if told["space_product"] else ""
    facts["trials"] = f"{count_text(told['configs'], 'config')}{product}: {counts}"
    reasons = _reasons(trials)
    if reasons:
        facts["failed"] = reasons
    if told["cost_s"]:
        facts["cost"] = f"{seconds_text(told['cost_s'])} of tuning"
    return facts


def _sure(best: Mapping[str, Any]) -> str:
    text = ns_text(best["ns"])
    if best["low_ns"] is None:
        return f"{text}, {count_text(best['samples'], 'sample')}"
    between = f"{ns_text(best['low_ns'])} to {ns_text(best['high_ns'])}"
    return f"{text}, {between} with 95 % ({count_text(best['samples'], 'sample')})"


def _reasons(trials: TrialColumns) -> list[str]:
    """The most frequent, with how often."""
    standing = trials.standing()
    codes, status = trials.column("error")[standing], trials.column("status")[standing]
    pairs, counts = np.unique(
        np.stack([status[codes > 0], codes[codes > 0]]), axis=1, return_counts=True
    )
    order = np.argsort(-counts, kind="stable")[:MOST_REASONS]
    return [
        shorten(
            f"{counts[at]:,}× {STATUSES[pairs[0][at]]}: {trials.errors.values[pairs[1][at]]}", 160
        )
        for at in order
    ]

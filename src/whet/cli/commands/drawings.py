"""`whet show`: a kernel and its workloads, as facts, heat maps and curves."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from whet.cli.arguments.reading import (
    NothingKnownError,
    known_names,
    moment_text,
    named,
    problem_text,
)
from whet.cli.commands.explore import library_of
from whet.cli.commands.passport import passport_lines, passports
from whet.cli.terminal.output import (
    Column,
    colour_wanted,
    columns,
    count_text,
    fields,
    flexible,
    ns_text,
    page,
    print_json,
    print_lines,
    printable,
    right,
    seconds_text,
    shorten,
    table,
    times_text,
    wrap,
)
from whet.core.config import Config
from whet.core.errors import UsageError, WhetError, did_you_mean
from whet.core.run import Run
from whet.explorer.columns import STATUSES, TrialColumns
from whet.explorer.drawings import (
    Convergence,
    HeatAxis,
    HeatGrid,
    bars,
    colour,
    curve_lines,
    grid_of,
    heat_lines,
    places_for,
)
from whet.explorer.importance import importance
from whet.explorer.library import Library
from whet.explorer.subject import Subject
from whet.replay import read_table


def overview(name: str | None, table: str | None, store: str | None, json: bool) -> None:
    """A kernel's passport, and one of its workloads at a glance."""
    about = passports(name, store) if name is not None and table is None else []
    found: LookedAt | None = None
    for text in (name, *(one.kernel for one in about)):
        try:
            found = looked_at(text, store, table)
            break
        except WhetError:  # a kernel that was only met has no workload, nor has one by its module
            if not about:
                raise
    if json:
        print_json({"v": 1, **_overview_json(found), "kernels": [one.to_json() for one in about]})
        return
    for one in about:
        print_lines([*passport_lines(one, page()), *([""] if found is not None else [])])
    if found is not None:
        _draw(found)


def _overview_json(found: LookedAt | None) -> dict[str, Any]:
    if found is None:
        return {"workload": None, "importance": []}
    trials = found.subject.read().columns
    return {"workload": found.subject.summary(), "importance": importance(trials)}


def _draw(found: LookedAt) -> None:
    print_lines([*found.title, ""])
    for line in show_lines(found.subject, found.subject.summary()):
        print(line)
    print_lines(found.further)


def space(
    name: str | None, x: str | None, y: str | None, table: str | None, store: str | None, json: bool
) -> None:
    """A heat map of two parameters."""
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


def history(name: str | None, run: str | None, store: str | None, json: bool) -> None:
    """How runs came to their best config."""
    found = looked_at(name, store, None)
    runs = [one for one in found.subject.runs() if run is None or one.id.startswith(run)]
    if not runs:
        what = "no tuning run" if run is None else f"no run has an id starting with '{run}'"
        raise UsageError(f"{what} of {found.subject.workload.kernel} in the store")
    trials = found.subject.read().columns
    curves = {one.id: Convergence.of(trials, trials.rows_of_run(one.id)) for one in runs}
    if json:
        told = [_run_json(one, curves[one.id]) for one in runs]
        print_json({"v": 1, "workload": found.subject.workload.to_json(), "runs": told})
        return
    lines = [*found.title, "", *run_lines(runs[:MOST_RUNS], page())]
    if len(runs) > MOST_RUNS:
        lines.append(f"and {len(runs) - MOST_RUNS} earlier ones")
    drawn = next((one for one in runs if curves[one.id].final_ns is not None), None)
    if drawn is not None:
        lines += ["", *curves_of(drawn, curves[drawn.id], page())]
    print_lines([*lines, *found.further])


def _run_json(run: Run, curve: Any) -> dict[str, Any]:
    return {
        "id": run.id,
        "search": run.search,
        "outcome": str(run.outcome),
        "started": run.started,
        "wall_s": run.wall_s,
        "seconds": list(curve.seconds),
        "best_ns": [None if math.isnan(ns) else ns for ns in curve.best_ns],
    }


@dataclass(frozen=True)
class LookedAt:
    """One workload, and the others of the same name."""

    subject: Subject
    others: tuple[Subject, ...]

    @property
    def title(self) -> list[str]:
        workload = self.subject.workload
        return wrap(f"{problem_text(workload)} on {workload.device.name}", page(), indent=2)

    @property
    def further(self) -> list[str]:
        """How to see the others."""
        if not self.others:
            return []
        ids = ", ".join(one.id[:8] for one in self.others[:4])
        more = ", …" if len(self.others) > 4 else ""
        text = f"and {count_text(len(self.others), 'other workload')}: {ids}{more}"
        return ["", *wrap(text, page(), indent=2)]


def looked_at(name: str | None, store: str | None, table: str | None) -> LookedAt:
    """The most recently active one that goes by the name."""
    library = library_of(store) if table is None else Library(None, {table: read_table(table)})
    every = library.subjects()
    if not every:
        place = str(library.about()["store"])
        raise NothingKnownError(f"no results yet in {place}; {_remedy()}", place)
    found = every if name is None else _named(name, every)
    return LookedAt(found[0], tuple(found[1:]))


def _remedy() -> str:
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y"):
        return "with TRITON_INTERPRET no Triton kernel is tuned: unset it, and use 'whet tune'"
    return "'whet tune' creates some"


def _named(name: str, every: Sequence[Subject]) -> list[Subject]:
    workloads = [one.workload for one in every]
    ids = named(name, workloads) or {one.id for one in workloads if one.id.startswith(name)}
    if not ids:
        hint = did_you_mean(name, known_names(workloads))
        raise UsageError(f"no results for kernel or workload '{name}'{hint}")
    return [one for one in every if one.workload.id in ids]


def readable(grid: HeatGrid) -> HeatGrid:
    """What a stranger's file calls its parameters must not steer the terminal."""
    return replace(
        grid,
        x=_axis(grid.x),
        y=_axis(grid.y),
        others=tuple(printable(name) for name in grid.others),
    )


def _axis(axis: HeatAxis) -> HeatAxis:
    return HeatAxis(printable(axis.name), tuple(printable(place) for place in axis.places))


MOST_REASONS, MOST_PARAMETERS, MOST_RUNS = 3, 8, 8


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
        right("trials"),
        right("took"),
        flexible("best"),
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
        facts["equal"] = f"{count_text(told['equals'], 'config')} tied with it"
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


def painter() -> Callable[[str, float], str] | None:
    """Colours a text by how fast it stands for; None where stdout is no terminal with colours."""
    return _painted if colour_wanted(sys.stdout) else None


def _painted(text: str, depth: float) -> str:
    red, green, blue = colour(depth)
    ink = 16 if 0.3 * red + 0.6 * green + 0.1 * blue > 120 else 231
    return f"\033[38;5;{ink};48;5;{_nearest(red, green, blue)}m{text}\033[0m"


def _nearest(*mixed: int) -> int:
    """Of the 216 colours that every such terminal has."""
    red, green, blue = (round(part * 5 / 255) for part in mixed)
    return 16 + 36 * red + 6 * green + blue

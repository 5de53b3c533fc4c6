"""`whet compare-searches`: all strategies on all tables, by the community's score."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import JsonOption
from whet.cli.tables import (
    ProcessesOption,
    RepeatsOption,
    StudySeedOption,
    TablesArgument,
    TransferOption,
    WorkloadsOption,
)
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.replay.figure import Figure
    from whet.replay.lab import Replayed
    from whet.replay.scores import Axis, Baseline, Score

EXAMPLES = """\b
Examples:
  whet compare-searches *.gz
  whet compare-searches *.gz --search auto,gp,random --repeats 50
  whet compare-searches *.gz --out study/searches
"""

_AXES: tuple[Axis, ...] = ("evaluations", "time")


def compare_searches(
    tables: TablesArgument,
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="NAME,…", help="Only these (default: all)."),
    ] = None,
    evals: Annotated[
        int, typer.Option("--evals", metavar="N", min=2, help="At most so many evaluations.")
    ] = 200,
    repeats: RepeatsOption = 20,
    seed: StudySeedOption = 0,
    transfer: TransferOption = None,
    workloads: WorkloadsOption = None,
    jobs: ProcessesOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="NAME",
            help="Write NAME.json, NAME-evaluations.svg, NAME-time.svg (default: searches).",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare strategies by score on recorded tables.

    The score is the share of the way from random search (0) to the optimum (1), averaged from the
    first evaluation to where random search itself has come 95 % of the way from the median config.
    Random search is calculated as the strategy 'random' goes, failing configs included; until
    something faster is found, every strategy counts as having the median config. With --json,
    files are written only where --out says so.
    """
    from whet.cli.output import page, print_json, print_lines
    from whet.cli.tables import counter, make_cases, processes, searches_named
    from whet.replay.lab import Experiment, replay
    from whet.replay.scores import Baseline, score
    from whet.search import STRATEGIES

    searches = searches_named(search) if search else STRATEGIES
    cases = make_cases(tables, transfer, workloads)
    experiment = Experiment(tuple(cases), searches, evals, repeats, seed)
    found = replay(experiment, processes(jobs), counter("tunings"))
    baselines = [Baseline(case, evals) for case in cases]
    scores = [
        score([one for one in found if one.search == name], baselines, axis)
        for name in searches
        for axis in _AXES
    ]
    data = _as_json(scores, baselines, found)
    figures = {axis: _figure(scores, axis, len(cases)) for axis in _AXES}
    if json:
        print_json(data)
    else:
        print_lines(_lines(scores, baselines, found, figures["evaluations"], page()))
    if out or not json:
        _write(out or "searches", data, figures)


def _as_json(
    scores: Sequence[Score], baselines: Sequence[Baseline], found: Sequence[Replayed]
) -> dict[str, Any]:
    return {
        "v": 1,
        "tables": [
            {
                "table": one.case.name,
                "workload": dict(one.case.workload.key),
                "evals": one.evals,
                "seconds": round(one.evals * one.eval_s, 6),
                "optimum": one.optimum.ns,
            }
            for one in baselines
        ],
        "scores": [
            {
                "search": one.search,
                "over": one.axis,
                "score": round(one.mean, 6),
                "interval": [round(one.low, 6), round(one.high, 6)],
                "by_table": [round(value, 6) for value in one.tables],
                "curve": [round(float(value), 6) for value in one.curve],
                "curve_low": [round(float(value), 6) for value in one.curve_low],
                "curve_high": [round(float(value), 6) for value in one.curve_high],
                "search_ms_per_eval": round(_own_ms(found, one.search), 4),
            }
            for one in scores
        ],
    }


def _own_ms(found: Sequence[Replayed], search: str) -> float:
    mine = [one.search_ms_per_eval for one in found if one.search == search]
    return sum(mine) / len(mine)


def _figure(scores: Sequence[Score], axis: Axis, tables: int) -> Figure:
    from whet.replay.figure import Figure, Series

    mine = sorted((one for one in scores if one.axis == axis), key=lambda one: -one.mean)
    places = tuple(100 * at / (len(mine[0].curve) - 1) for at in range(len(mine[0].curve)))
    lowest = -1.0
    return Figure(
        title=f"Strategies over {axis}, {tables} tables",
        x_label=f"% of what random search needs, in {axis}",
        y_label="score (0 random search, 1 optimum)",
        series=tuple(
            Series(
                f"{one.search} {one.mean:.2f}",
                places,
                tuple(float(max(value, lowest)) for value in one.curve),
                tuple(float(max(value, lowest)) for value in one.curve_low),
                tuple(float(max(value, lowest)) for value in one.curve_high),
            )
            for one in mine
        ),
    )


def _lines(
    scores: Sequence[Score],
    baselines: Sequence[Baseline],
    found: Sequence[Replayed],
    figure: Figure,
    width: int,
) -> list[str]:
    from whet.cli.output import Column, table
    from whet.cli.plot import plot
    from whet.cli.tables import case_text

    layout = [
        Column("search"),
        Column("over evaluations", align="right"),
        Column("over time", align="right"),
        Column("worst table", flexible=True),
        Column("", align="right"),
        Column("ms", align="right"),
    ]
    pairs = {one.search: one for one in scores if one.axis == "time"}
    rows = []
    for one in sorted((s for s in scores if s.axis == "evaluations"), key=lambda s: -s.mean):
        worst = min(range(len(one.tables)), key=one.tables.__getitem__)
        rows.append(
            (
                one.search,
                _band(one),
                _band(pairs[one.search]),
                case_text(baselines[worst].case),
                f"{one.tables[worst]:.2f}",
                f"{_own_ms(found, one.search):.1f}",
            )
        )
    head = [
        "score: 0 is random search, 1 the optimum; in brackets 95 % confidence",
        "ms: the strategy's own time an evaluation",
    ]
    return [*head, "", *table(layout, rows, width), "", *plot(figure, width)]


def _band(one: Score) -> str:
    return f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _write(name: str, data: dict[str, Any], figures: dict[Axis, Figure]) -> None:
    from whet.replay.figure import png_possible, write_figure

    written = [f"{name}.json"]
    try:
        Path(written[0]).write_text(json_format.dumps(data, ensure_ascii=False), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{written[0]} cannot be written: {error.strerror or error}") from None
    for axis, figure in figures.items():
        for ending in ("svg", "png") if png_possible() else ("svg",):
            written.append(f"{name}-{axis}.{ending}")
            write_figure(figure, written[-1])
    print(f"whet: wrote {', '.join(written)}", file=sys.stderr)

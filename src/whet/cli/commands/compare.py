"""`whet compare-searches`: all strategies on all tables, by the community's score."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption
from whet.cli.arguments.tables import (
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
    from whet.replay.scores import Axis, Score, StrategyComparison

EXAMPLES = """\b
Examples:
  whet compare-searches h200-gemm-576 --workloads 2
  whet compare-searches mine/*.gz --search auto,gp,random --repeats 50
  whet compare-searches mine/*.gz --out study/searches
"""


def compare_searches(
    tables: TablesArgument,
    search: Annotated[
        str | None,
        typer.Option(
            "--search", metavar="NAME,…", help="Compare only these strategies (default: all)."
        ),
    ] = None,
    evals: Annotated[
        int, typer.Option("--evals", metavar="N", min=2, help="Limit on evaluations.")
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
            help="Write NAME.json, NAME-evaluations.svg and NAME-time.svg.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare strategies by score on recorded tables.

    A score of 0 is random search and 1 is the optimum, averaged from the first evaluation to the
    point where random search has covered 95 % of the way from the median config to the optimum.
    Random search is calculated for the strategy 'random', failing configs included; until a
    strategy finds something faster, it is credited with the median config. The last sentence says
    what to use and how certain that is: four times the --repeats halve the ±. 'random' is quick
    and varies most, so it is repeated ten times as often.
    """
    from whet.cli.arguments.tables import make_cases, processes, searches_named
    from whet.cli.terminal.countdown import Countdown
    from whet.cli.terminal.output import page, print_json, print_lines
    from whet.cli.text.compare_verdict import verdict
    from whet.replay.scores import contest
    from whet.search import STRATEGIES

    searches = searches_named(search) if search else STRATEGIES
    cases = make_cases(tables, transfer, workloads)
    found = contest(cases, searches, evals, repeats, seed, processes(jobs), Countdown("tunings"))
    said = verdict(found.standings, len(cases))
    data = _as_json(found, said)
    if json:
        print_json(data)
    else:
        print_lines(_lines(found, said, page()))
    if out:
        figures = {
            axis: _figure(standing.order, axis, len(cases))
            for axis, standing in found.standings.items()
        }
        _write(out, data, figures)


def _as_json(found: StrategyComparison, verdict: str) -> dict[str, Any]:
    from whet.cli.text.compare_verdict import interval

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
            for one in found.baselines
        ],
        "scores": [
            {
                "search": one.search,
                "over": one.axis,
                "score": round(one.mean, 6),
                "interval": interval(one),
                "level_with_best": one.search in standing.level,
                "repeats": len(one.repeats),
                "by_table": [round(value, 6) for value in one.tables],
                "curve": [round(float(value), 6) for value in one.curve],
                "curve_low": [round(float(value), 6) for value in one.curve_low],
                "curve_high": [round(float(value), 6) for value in one.curve_high],
                "search_ms_per_eval": round(found.own_ms(one.search), 4),
            }
            for standing in found.standings.values()
            for one in standing.order
        ],
        "verdict": verdict,
    }


def _lines(found: StrategyComparison, verdict: str, width: int) -> list[str]:
    from whet.cli.arguments.tables import case_labels
    from whet.cli.terminal.output import wrap
    from whet.cli.text.compare import comparison_lines
    from whet.cli.text.compare_verdict import about_random

    order = found.standings["evaluations"].order
    common, labels = case_labels([one.case for one in found.baselines])
    own_ms = {one.search: found.own_ms(one.search) for one in order}
    lines = comparison_lines(found.standings, common, labels, own_ms, width)
    for one in order:
        if one.search == "random" and len(one.repeats) > 1:
            lines += ["", *wrap(about_random(one), width)]
    return [*lines, "", *wrap(verdict, width)]


def _figure(scores: Sequence[Score], axis: Axis, tables: int) -> Figure:
    from whet.replay.figure import Figure, Series

    places = tuple(100 * at / (len(scores[0].curve) - 1) for at in range(len(scores[0].curve)))
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
            for one in scores
        ),
    )


def _write(name: str, data: dict[str, Any], figures: dict[Axis, Figure]) -> None:
    from whet.replay.figure import png_possible, write_figure

    written = [f"{name}.json"]
    try:
        Path(written[0]).write_text(json_format.dumps(data, ensure_ascii=False), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {written[0]}: {error.strerror or error}") from None
    for axis, figure in figures.items():
        for ending in ("svg", "png") if png_possible() else ("svg",):
            written.append(f"{name}-{axis}.{ending}")
            write_figure(figure, written[-1])
    print(f"whet: wrote {', '.join(written)}", file=sys.stderr)

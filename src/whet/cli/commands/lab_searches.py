"""`whet lab searches`: all strategies on all tables, by the community's score."""

from __future__ import annotations

import json as json_format
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.cli.commands.lab import case_labels, make_cases, processes, searches_named
from whet.cli.terminal.countdown import Countdown
from whet.cli.terminal.output import (
    Column,
    count_text,
    fold,
    natural_width,
    page,
    print_json,
    print_lines,
    right,
    table,
    wrap,
)
from whet.core.errors import UsageError
from whet.replay.figure import Figure, Series, png_possible, write_figure
from whet.replay.scores import (
    AXES,
    DEFAULT,
    Axis,
    Lead,
    Score,
    Standing,
    StrategyComparison,
    contest,
    recommended,
)
from whet.search import STRATEGIES


def compare_searches(
    tables: Sequence[str],
    search: str | None,
    evals: int,
    repeats: int,
    seed: int,
    transfer: Sequence[str] | None,
    workloads: int | None,
    jobs: int | None,
    out: str | None,
    json: bool,
) -> None:
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
    order = found.standings["evaluations"].order
    common, labels = case_labels([one.case for one in found.baselines])
    own_ms = {one.search: found.own_ms(one.search) for one in order}
    lines = comparison_lines(found.standings, common, labels, own_ms, width)
    for one in order:
        if one.search == "random" and len(one.repeats) > 1:
            lines += ["", *wrap(about_random(one), width)]
    return [*lines, "", *wrap(verdict, width)]


def _figure(scores: Sequence[Score], axis: Axis, tables: int) -> Figure:
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


# A strategy may be far worse than random search; the chart ends here.
_LOWEST = -1.0
_SIGNS, _ASCII = tuple("●○├┤─│◂"), tuple("*o[]-|<")


def comparison_lines(
    standings: Mapping[Axis, Standing],
    common: str,
    labels: Sequence[str],
    own_ms: Mapping[str, float],
    width: int,
) -> list[str]:
    """`labels` tell the workloads apart, `common` is what they share."""
    order = standings["evaluations"].order
    about = [common, count_text(min(len(one.repeats) for one in order), "repeat")]
    if len(labels) > 1:
        about.insert(1, count_text(len(labels), "workload"))
    notes = [
        "score over evaluations and over time: 0 is random search, 1 the optimum",
        "± 95 % confidence",
        *(["*: no significant difference from the best"] if len(order) > 1 else []),
        "ms: own time per evaluation",
    ]
    folded, layout, rows = fold(*_rows(standings, labels, own_ms, worst=len(labels) > 1))
    if natural_width(layout, rows) > width:
        folded, layout, rows = fold(*_rows(standings, labels, own_ms, worst=False))
        notes.append("--json and a wider terminal also have the worst workload")
    elif len(labels) > 1:
        where = folded.pop("on", "")
        notes.append(
            "worst: over evaluations, on the workload where it is lowest"
            + (f", {where} in every row" if where else "")
        )
    notes += [f"{title}: {text.strip()} in every row" for title, text in folded.items()]
    return [
        *wrap(", ".join(about), width),
        *wrap("; ".join(notes), width),
        "",
        *table(layout, rows, width),
        "",
        *chart(standings, width),
    ]


def _rows(
    standings: Mapping[Axis, Standing],
    labels: Sequence[str],
    own_ms: Mapping[str, float],
    *,
    worst: bool,
) -> tuple[list[Column], list[tuple[str, ...]]]:
    layout = [
        Column("search"),
        *(right(axis) for axis in AXES),
        right("ms"),
        *([right("worst"), Column("on")] if worst else []),
    ]
    by_time = {one.search: one for one in standings["time"].order}
    rows = []
    for one in standings["evaluations"].order:
        cells = [
            one.search,
            _cell(one, standings["evaluations"]),
            _cell(by_time[one.search], standings["time"]),
            f"{own_ms[one.search]:.1f}",
        ]
        if worst:
            lowest = min(range(len(one.tables)), key=one.tables.__getitem__)
            cells += [f"{one.tables[lowest]:.2f}", labels[lowest]]
        rows.append(tuple(cells))
    return layout, rows


def _cell(one: Score, standing: Standing) -> str:
    half = "" if math.isinf(one.half) else f" ± {one.half:.2f}"
    mark = "*" if len(standing.order) > 1 and one.search in standing.level else " "
    return f"{one.mean:.2f}{half} {mark}"


def chart(standings: Mapping[Axis, Standing], width: int) -> list[str]:
    """A line for each strategy: where its scores lie between random search and the optimum."""
    dot, ring, left, right, dash, wall, less = _SIGNS if _can_print("".join(_SIGNS)) else _ASCII
    order = standings["evaluations"].order
    over_time = {one.search: one.mean for one in standings["time"].order}
    names = max(len(one.search) for one in order)
    across = width - names - 3
    halves = {one.search: one.half if math.isfinite(one.half) else 0.0 for one in order}
    lowest = min(min(one.mean - halves[one.search], over_time[one.search]) for one in order)
    low = max(_LOWEST, min(lowest, 0.0))
    high = max(1.0, *(one.mean + halves[one.search] for one in order))

    def place(value: float) -> int:
        return round((min(max(value, low), high) - low) / (high - low) * (across - 1))

    lines = [" " * (names + 2) + _scale(place(0.0), place(1.0), across)]
    for one in order:
        row = [" "] * across
        row[place(0.0)] = row[place(1.0)] = wall
        start, end = (place(one.mean + sign * halves[one.search]) for sign in (-1, 1))
        row[start : end + 1] = dash * (end - start + 1)
        row[start], row[end] = left, right
        row[place(over_time[one.search])] = ring
        row[place(one.mean)] = dot
        if min(one.mean, over_time[one.search]) < low:
            row[0] = less
        lines.append(f"{one.search:<{names}}  {''.join(row)}".rstrip())
    legend = f"{dot} over evaluations, with its interval; {ring} over time"
    return [*lines, *wrap(f"{legend}; {less} less" if lowest < low else legend, width)]


def _scale(zero: int, one: int, across: int) -> str:
    scale = [" "] * across
    start, end = "0 random", "optimum 1"
    scale[zero : zero + len(start)] = start
    if one + 1 - len(end) > zero + len(start):
        scale[one + 1 - len(end) : one + 1] = end
    return "".join(scale[:across]).rstrip()


def _can_print(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeError:
        return False
    return True


_APART = "too close to call"


def verdict(standings: Mapping[Axis, Standing], workloads: int) -> str:
    """What to use, by how much it was ahead, and how sure that is."""
    order = standings["evaluations"].order
    repeats = min(len(one.repeats) for one in order)
    where = "this workload" if workloads == 1 else f"these {workloads} workloads"
    if repeats < 2:
        return (
            f"{order[0].search} was best over evaluations on {where}, but one repeat cannot "
            "say how certain that is; use --repeats 5 or more."
        )
    basis = f"This holds for {where} and {repeats} repeats, with 95 % confidence."
    if len(order) == 1:
        return f"{_against_random(standings, order[0].search)} {basis}"
    chosen = recommended(list(standings.values()))
    if chosen is None:
        parts = [
            f"{start} use {one.best.search}: it was {_led(one.lead_of(one.best.search))}."
            for start, one in zip(
                ("For few evaluations", "For little time"), standings.values(), strict=True
            )
        ]
        return " ".join([*parts, basis])
    leads = {axis: one.lead_of(chosen) for axis, one in standings.items()}
    parts = [f"over {axis} it was {_led(one)}" for axis, one in leads.items()]
    said = f"{parts[0][0].upper()}{parts[0][1:]}; {parts[1]}."
    if all(one.sure for one in leads.values()):
        start = f"Use {chosen}."
    else:
        named = f"{chosen}, the default" if chosen == DEFAULT else chosen
        start = f"Use {named}: nothing proved better."
        basis += f" --repeats {4 * repeats} would halve the ±."
    beaten = all(_mine(one, chosen).mean > _mine(one, chosen).half for one in standings.values())
    if chosen != "random" and not beaten:
        said += f" {_against_random(standings, chosen)}"
    return f"{start} {said} {basis}"


def about_random(random: Score) -> str:
    """Whether the strategy did as was calculated for it."""
    if abs(random.mean) <= random.half:
        agrees = "as calculated, within the interval"
    else:
        agrees = (
            f"{'less' if random.mean < 0 else 'more'} than calculated: by chance, or because "
            "it judges a config by a few samples and the calculation by all of them"
        )
    scored = f"{random.mean:.2f} ± {random.half:.2f}"
    repeats = count_text(len(random.repeats), "repeat")
    return f"Random search should score 0 as calculated; in {repeats} it scored {scored}, {agrees}."


def _led(one: Lead) -> str:
    if one.by == 0:
        return f"level with {one.over}"
    digits = 2 if max(abs(one.by), one.half) >= 0.01 else 4
    by = f"{abs(one.by):.{digits}f} ± {one.half:.{digits}f}"
    said = f"ahead of the next best ({one.over})" if one.by > 0 else f"behind the best ({one.over})"
    return f"{said} by {by}" + ("" if one.sure else f", {_APART}")


def _against_random(standings: Mapping[Axis, Standing], search: str) -> str:
    scores = {axis: _mine(one, search) for axis, one in standings.items()}
    listed = " and ".join(
        f"{one.mean:.2f} ± {one.half:.2f} over {axis}" for axis, one in scores.items()
    )
    if all(one.mean > one.half for one in scores.values()):
        means = "it was better than random search, which scores 0"
    elif all(one.mean < -one.half for one in scores.values()):
        means = "it was worse than random search, which scores 0"
    else:
        means = "it was not shown to be better than random search, which scores 0"
    return f"{search} scored {listed}: {means}."


def _mine(standing: Standing, search: str) -> Score:
    return next(one for one in standing.order if one.search == search)


def interval(one: Score) -> list[float] | None:
    """None where one repeat has none."""
    if math.isinf(one.half):
        return None
    return [round(one.mean - one.half, 6), round(one.mean + one.half, 6)]

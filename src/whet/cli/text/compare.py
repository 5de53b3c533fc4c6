"""A comparison of strategies as a table and a chart."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from whet.cli.terminal.output import Column, count_text, fold, natural_width, table, wrap
from whet.replay.scores import AXES, Axis, Score, Standing

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
        *(["*: cannot be told from the best"] if len(order) > 1 else []),
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
        *(Column(axis, align="right") for axis in AXES),
        Column("ms", align="right"),
        *([Column("worst", align="right"), Column("on")] if worst else []),
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

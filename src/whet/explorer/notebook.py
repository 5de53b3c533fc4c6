"""Results, tables and stores in a notebook: as HTML that stands alone, without a script and with
all text escaped, and as something to brush where anywidget is installed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from whet.core.errors import UsageError
from whet.core.run import Result
from whet.core.trial import Trial
from whet.explorer.columns import STATUSES, UNTRIED, Rows, TrialColumns, first_line
from whet.explorer.drawings import (
    Cell,
    Convergence,
    HeatGrid,
    colour,
    grid_of,
    shortened,
)
from whet.explorer.importance import importance
from whet.explorer.library import Library
from whet.explorer.subject import Subject
from whet.replay.table import Table
from whet.store import MemoryStore, StoreReader
from whet.store.scanning import rows_of

# What fits on a screen; the explorer has the rest.
MOST_LINES, MOST_PLACES, MOST_ROWS = 20, 16, 100_000

_FONT = 'font-family="system-ui, sans-serif" font-size="11" fill="currentColor"'
_CELL_W, _CELL_H, _LEFT, _TOP = 46, 24, 90, 22
_CURVE_W, _CURVE_H = 420, 150


def explore(thing: Result | Table | StoreReader, kernel: str = "", **key: Any) -> SpaceView:
    """The trials of one workload to look at in a notebook: the last value of a cell shows itself.

    Dragging along an axis or over the heat map selects; `selected` has the trials that are left,
    the fastest first. It needs the extra `notebook`; without it there is a picture, and `selected`
    has all trials. Of a store or a table with several workloads it takes the one of this kernel and
    key, `whet.explore(store, "matmul", M=4096)`, and of several that fit the first, which in a
    store is the most recent.
    """
    subject = _subject_of(thing, kernel, key)
    try:
        from whet.explorer.widget import SpaceWidget
    except ImportError:
        return SpaceView(subject)
    return SpaceWidget(subject)


class SpaceView:
    """What `whet.explore` returns, as a picture."""

    def __init__(self, subject: Subject) -> None:
        # All at once: the store may be closed before anybody asks.
        self.reading = subject.read()
        self.summary = subject.summary()
        self._trials = subject.all_trials()

    @property
    def selected(self) -> list[Trial]:
        found = [self._trials[row] for row in self.selected_rows().tolist()]
        return sorted(filter(None, found), key=lambda trial: trial.median_ns or math.inf)

    def selected_rows(self) -> Rows:
        columns = self.reading.columns
        tried = columns.column("status") != STATUSES.index(UNTRIED)
        return np.flatnonzero(columns.standing() & tried).astype(np.uint32)

    def _repr_html_(self) -> str:
        line = self.summary
        best_ns = None if line["best"] is None else line["best"]["ns"]
        told = "A picture: with the package anywidget, the cell has axes and a map to brush."
        drawings = _drawings(self.reading.columns, best_ns)
        return _page(_problem(line), [_listing([line]), *drawings, _note(told)])


def _subject_of(thing: Result | Table | StoreReader, kernel: str, key: dict[str, Any]) -> Subject:
    if isinstance(thing, Result):
        store = MemoryStore()
        store.save_run(thing.run)
        store.append(thing.trials or (thing.best,))
        thing = store
    tables = {thing.kernel: thing} if isinstance(thing, Table) else None
    library = Library(None if isinstance(thing, Table) else thing, tables)
    known = [one for one in library.subjects() if not kernel or one.workload.kernel == kernel]
    for one in known:
        if key.items() <= dict(one.workload.key).items():
            return one
    asked = ", ".join([kernel or "any kernel", *(f"{name}={key[name]}" for name in key)])
    there = "; ".join(sorted({str(one.workload) for one in known or library.subjects()})[:5])
    raise UsageError(f"no workload fits {asked}; there is {there or 'none'}")


def html_of(thing: Any) -> str | None:
    if isinstance(thing, Result):
        return result_html(thing)
    if isinstance(thing, Table):
        return _library_html(Library(None, {thing.kernel: thing}), f"a table of {thing.kernel}")
    return _library_html(Library(thing), thing.location)


def result_html(result: Result) -> str:
    columns = TrialColumns({result.run.id: result.run.started})
    columns.extend(rows_of(result.trials or (result.best,)))
    best, coverage = result.best, result.run.coverage
    facts = {
        "outcome": f"{result.run.outcome}, {result.source}",
        "best": str(best.config),
        "time": _time(best),
        "speed-up": "–" if result.speedup is None else f"{result.speedup:.2f}× the first config",
        "as fast": ", ".join(map(str, result.equals)) or "none",
        "trials": _counted(result.statuses),
        "failed": _reasons(result.trials),
        "space": "–" if coverage is None else str(coverage),
        "took": f"{result.run.wall_s:.3g} s",
    }
    return _page(
        str(result.run.workload),
        [_facts(facts), *_drawings(columns, best.median_ns), *map(_note, result.notes)],
    )


def _library_html(library: Library, where: str) -> str:
    lines = library.summaries()
    subjects = {subject.id: subject for subject in library.subjects()}
    shown = lines[:MOST_LINES]
    body = [_listing(shown)]
    if len(lines) > len(shown):
        body.append(_note(f"and {len(lines) - len(shown):,} more; 'whet explore' shows them all"))
    first = next((line for line in lines if line["best"] is not None), None)
    if first is not None and first["rows"] <= MOST_ROWS:
        body.append(_page(_problem(first), ()))
        body += _drawings(subjects[first["id"]].read().columns, first["best"]["ns"])
    return _page(f"{len(lines):,} workload{'' if len(lines) == 1 else 's'} in {where}", body)


def _drawings(columns: TrialColumns, best_ns: float | None) -> list[str]:
    grid = grid_of(columns, most=MOST_PLACES)
    pair = () if grid is None else (name for name in (grid.x.name, grid.y.name) if name)
    parts = {} if grid is None else {f"The best config by {' and '.join(pair)}": heat_svg(grid)}
    found = [(str(one["parameter"]), float(one["share"])) for one in importance(columns)]
    if found:
        parts["What matters: the share of the differences in time"] = bars_svg(found)
    if best_ns and len(columns.runs.values) == 1:
        parts["How it was found"] = curve_svg(Convergence.of(columns), best_ns)
    return [
        f'<div style="margin-top:10px"><em>{escape(title)}</em></div><div>{part}</div>'
        for title, part in parts.items()
        if part
    ]


def _listing(lines: Sequence[Mapping[str, Any]]) -> str:
    head = ("kernel", "key", "device", "best", "speed-up", "trials", "config")
    rows = [
        (
            str(line["kernel"]),
            ", ".join(f"{name}={value}" for name, value in line["key"].items()),
            str(line["device"]),
            "–" if line["best"] is None else _ns(line["best"]["ns"]),
            "–" if line["speedup"] is None else f"{line['speedup']:.2f}×",
            _counted(line["trials"]),
            "–"
            if line["best"] is None
            else " ".join(f"{name}={value}" for name, value in line["best"]["config"].items()),
        )
        for line in lines
    ]
    cells = [_row(head, "th"), *(_row(row, "td") for row in rows)]
    return f"<table>{''.join(cells)}</table>"


def _row(texts: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"


def _facts(facts: Mapping[str, str]) -> str:
    rows = [
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts.items()
    ]
    return f"<table>{''.join(rows)}</table>"


def _page(title: str, parts: Sequence[str]) -> str:
    return f"<div><strong>{escape(title)}</strong>{''.join(parts)}</div>"


def _note(text: str) -> str:
    return f"<div><em>{escape(text)}</em></div>"


def _problem(line: Mapping[str, Any]) -> str:
    key = ", ".join(f"{name}={value}" for name, value in line["key"].items())
    return f"{line['kernel']}({key}) on {line['device']}"


def _counted(statuses: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in statuses.items()) or "none"


def _reasons(trials: Sequence[Trial]) -> str:
    failed = Counter(
        first_line(one.error) or str(one.status) for one in trials if one.status.failed
    )
    return "; ".join(f"{count:,}× {reason}" for reason, count in failed.most_common(3)) or "none"


def _time(trial: Trial) -> str:
    if trial.median_ns is None or trial.timing is None:
        return "not measured"
    interval = trial.timing.interval_ns
    between = "" if interval is None else f", {_ns(interval[0])} to {_ns(interval[1])} with 95 %"
    return f"{_ns(trial.median_ns)}{between}, {len(trial.timing.samples)} samples"


def _ns(ns: float | None) -> str:
    if ns is None:
        return "–"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def heat_svg(grid: HeatGrid) -> str:
    width = max(380, _LEFT + _CELL_W * len(grid.x.places) + 10)
    height = _TOP + _CELL_H * len(grid.y.places) + 34
    parts = [_text(_LEFT, 14, grid.x.name), _text(4, 14, grid.y.name)]
    for column, place in enumerate(grid.x.places):
        at = _LEFT + _CELL_W * column + _CELL_W / 2
        parts.append(_text(at, height - 18, shortened(place, 7), "middle"))
    for row, (place, cells) in enumerate(zip(grid.y.places, grid.cells, strict=True)):
        top = _TOP + _CELL_H * row
        parts.append(_text(_LEFT - 6, top + 16, shortened(place, 13), "end"))
        for column, cell in enumerate(cells):
            parts.append(_cell(grid, cell, _LEFT + _CELL_W * column, top))
    told = "in % of the best's speed"
    if grid.others:
        told += f"; best over {', '.join(grid.others)}"
    parts.append(_text(4, height - 4, shortened(told, int(width / 5.5))))
    return _svg(width, height, parts, f"heat map of {grid.x.name} and {grid.y.name}")


def _cell(grid: HeatGrid, cell: Cell, left: float, top: float) -> str:
    depth, share = grid.depth(cell), grid.share(cell)
    box = f'x="{left}" y="{top}" width="{_CELL_W - 2}" height="{_CELL_H - 2}"'
    if depth is None or share is None:
        told = cell.failed or "not tried"
        dashes = "" if cell.failed else ' stroke-dasharray="2 2"'
        mark = _text(left + _CELL_W / 2 - 1, top + 15, "✕" if cell.failed else "", "middle")
        return (
            f'<rect {box} fill="none" stroke="currentColor" stroke-opacity="0.35"{dashes}>'
            f"<title>{escape(told)}</title></rect>{mark}"
        )
    red, green, blue = colour(depth)
    ink = "#000" if 0.3 * red + 0.6 * green + 0.1 * blue > 120 else "#fff"
    edge = ' stroke="currentColor" stroke-width="2"' if share >= 1 else ""
    assert cell.ns is not None
    told = f"{cell.ns:,.0f} ns, {cell.tried} tried"
    return (
        f'<rect {box} fill="rgb({red},{green},{blue})"{edge}><title>{told}</title></rect>'
        f'<text x="{left + _CELL_W / 2 - 1}" y="{top + 15}" text-anchor="middle" '
        f'font-family="system-ui, sans-serif" font-size="11" fill="{ink}">{100 * share:.0f}</text>'
    )


def curve_svg(curve: Convergence, against_ns: float) -> str:
    """The best so far in per cent, by evaluations."""
    shares = curve.shares(against_ns)
    if not shares:
        return ""
    step = _CURVE_W / len(shares)
    points = [(40 + step * at, _height(share)) for at, share in enumerate(shares)]
    path = " ".join(
        f"{'M' if at == 0 else 'H'}{x:.1f}" + (f" {y:.1f}" if at == 0 else f" V{y:.1f}")
        for at, (x, y) in enumerate(points)
    )
    parts = [
        f'<path d="{path} H{40 + _CURVE_W}" fill="none" stroke="rgb(31,120,180)" stroke-width="2"/>'
    ]
    for share in (0.0, 0.5, 1.0):
        y = _height(share)
        parts.append(_text(34, y + 4, f"{100 * share:.0f} %", "end"))
        parts.append(
            f'<path d="M40 {y:.1f} H{40 + _CURVE_W}" stroke="currentColor" stroke-opacity="0.2"/>'
        )
    parts.append(_text(40, _CURVE_H + 28, "the best so far, of the best found"))
    parts.append(_text(40 + _CURVE_W, _CURVE_H + 28, f"{len(shares):,} evaluations", "end"))
    return _svg(_CURVE_W + 50, _CURVE_H + 34, parts, "convergence")


def bars_svg(shares: Sequence[tuple[str, float]]) -> str:
    parts = []
    for at, (name, share) in enumerate(shares):
        top = 4 + 20 * at
        length = 220 * min(1.0, max(0.0, share))
        parts.append(_text(110, top + 12, shortened(name, 16), "end"))
        parts.append(
            f'<rect x="116" y="{top}" width="{length:.1f}" height="15" fill="rgb(49,104,142)"/>'
        )
        parts.append(_text(122 + length, top + 12, f"{100 * share:.0f} %"))
    return _svg(390, 20 * len(shares) + 8, parts, "importance of parameters")


def _height(share: float) -> float:
    return 8 + _CURVE_H * (1 - min(1.0, max(0.0, share if math.isfinite(share) else 0.0)))


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {_FONT}>{escape(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str], label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )

"""Results, tables and stores as HTML that stands alone: no server, no script, all text escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from whet.core.run import Result
from whet.core.trial import Trial
from whet.explorer.columns import TrialColumns, first_line
from whet.explorer.drawing.grid import Convergence, grid_of
from whet.explorer.drawing.svg import bars_svg, curve_svg, heat_svg
from whet.explorer.importance import importance
from whet.explorer.library import Library
from whet.explorer.subject import Subject
from whet.replay.table import Table
from whet.store.scanning import rows_of

# What fits on a screen; the explorer has the rest.
MOST_LINES, MOST_PLACES, MOST_ROWS = 20, 16, 100_000


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
        body.append(_heading(_problem(first)))
        body += _subject_drawings(subjects[first["id"]], first["best"]["ns"])
    return _page(f"{len(lines):,} workload{'' if len(lines) == 1 else 's'} in {where}", body)


def _subject_drawings(subject: Subject, best_ns: float | None) -> list[str]:
    return _drawings(subject.read().columns, best_ns)


def _drawings(columns: TrialColumns, best_ns: float | None) -> list[str]:
    grid = grid_of(columns, most=MOST_PLACES)
    parts = [] if grid is None else [heat_svg(grid)]
    found = [(str(one["parameter"]), float(one["share"])) for one in importance(columns)]
    parts += [bars_svg(found)] if found else []
    if best_ns and len(columns.runs.values) == 1:
        parts.append(curve_svg(Convergence.of(columns), best_ns))
    return [f"<div>{part}</div>" for part in parts if part]


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


def _heading(text: str) -> str:
    return f"<div><strong>{escape(text)}</strong></div>"


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

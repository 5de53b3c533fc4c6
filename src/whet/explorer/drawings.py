"""Heat maps of two parameters and curves: what there is to draw, and it in characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.errors import UsageError, did_you_mean
from whet.explorer.columns import STATUSES, UNTRIED, TrialColumns, value_text
from whet.explorer.importance import importance

# Viridis, from slow to fast: readable without telling red from green, and in grey.
_SCALE = (
    (68, 1, 84),
    (72, 40, 120),
    (62, 74, 137),
    (49, 104, 142),
    (38, 130, 142),
    (31, 158, 137),
    (53, 183, 121),
    (109, 205, 89),
    (180, 222, 44),
    (253, 231, 37),
)
SHADES = " ░▒▓█"
EIGHTHS = " ▁▂▃▄▅▆▇█"
_SHORT = {
    "resources": "res",
    "build_error": "build",
    "build_timeout": "b.time",
    "run_error": "run",
    "run_timeout": "r.time",
    "wrong_result": "wrong",
    "constraint": "constr",
}
_WIDE, _NARROW = 7, 3

Paint = Callable[[str, float], str]


@dataclass(frozen=True)
class Cell:
    """The fastest config with these two values. `failed` says why none works, "" where one does or
    none was tried."""

    ns: float | None = None
    tried: int = 0
    failed: str = ""


@dataclass(frozen=True)
class HeatAxis:
    """`places` are the values' texts in their order; several are one place where there are too
    many."""

    name: str
    places: tuple[str, ...]


@dataclass(frozen=True)
class HeatGrid:
    """`cells` are by row, then by column: `cells[y][x]`."""

    x: HeatAxis
    y: HeatAxis
    cells: tuple[tuple[Cell, ...], ...]
    others: tuple[str, ...]

    @property
    def best_ns(self) -> float | None:
        known = [cell.ns for row in self.cells for cell in row if cell.ns is not None]
        return min(known, default=None)

    def share(self, cell: Cell) -> float | None:
        """Of the best cell's speed."""
        best = self.best_ns
        return None if cell.ns is None or best is None else best / cell.ns

    def depth(self, cell: Cell) -> float | None:
        """0 for the slowest, 1 for the best, by the logarithm of the time: how dark to draw it."""
        known = [one.ns for row in self.cells for one in row if one.ns is not None]
        if cell.ns is None:
            return None
        low, high = math.log(min(known)), math.log(max(known))
        return 1.0 if high <= low else (high - math.log(cell.ns)) / (high - low)


def varied(columns: TrialColumns) -> list[str]:
    """The parameters with more than one value, the most important first."""
    names = [name for name, codes in columns.parameters.items() if len(codes.values) > 1]
    ranked = [str(one["parameter"]) for one in importance(columns)]
    return [*ranked, *(name for name in names if name not in ranked)]


def grid_of(
    columns: TrialColumns, x: str | None = None, y: str | None = None, most: int = 64
) -> HeatGrid | None:
    """Of the two parameters that matter most, where none are named; None where nothing was tried
    or nothing varies. An axis of more than `most` values has several in one place."""
    names = varied(columns)
    for wanted in (x, y):
        if wanted is not None and wanted not in columns.parameters:
            hint = did_you_mean(wanted, columns.parameters)
            raise UsageError(f"no parameter '{wanted}'{hint}")
    left = [name for name in names if name not in (x, y)]
    x = x or (left.pop(0) if left else None)
    y = y or next((name for name in left if name != x), None)
    if x is None:
        return None
    across, down = _RowPlaces(columns, x, most), _RowPlaces(columns, y, most)
    cells = _cells(columns, across, down)
    others = tuple(name for name in names if name not in (x, y))
    return HeatGrid(across.axis, down.axis, cells, others)


class _RowPlaces:
    """Each row's place on an axis; one place for all where there is no second parameter."""

    def __init__(self, columns: TrialColumns, name: str | None, most: int) -> None:
        if name is None:
            self.axis = HeatAxis("", ("",))
            self.of_rows = np.zeros(columns.rows, dtype=np.int64)
            return
        values = [value_text(value) for value in columns.parameters[name].shown()]
        each = -(-len(values) // most)
        groups = [values[at : at + each] for at in range(0, len(values), each)]
        texts = [one[0] if len(one) == 1 else f"{one[0]}–{one[-1]}" for one in groups]
        self.axis = HeatAxis(name, tuple(texts))
        self.of_rows = columns.column(f"p:{name}").astype(np.int64) // each


def _cells(
    columns: TrialColumns, across: _RowPlaces, down: _RowPlaces
) -> tuple[tuple[Cell, ...], ...]:
    width, height = len(across.axis.places), len(down.axis.places)
    place = down.of_rows * width + across.of_rows
    standing, status = columns.standing(), columns.column("status")
    tried = standing & (status != STATUSES.index(UNTRIED))
    medians = columns.column("median_ns").astype(np.float64)
    works = tried & columns.measured()
    best = np.full(width * height, np.inf)
    np.minimum.at(best, place[works], medians[works])
    counts = np.bincount(place[tried], minlength=width * height)
    reasons = np.bincount(
        place[tried] * len(STATUSES) + status[tried], minlength=width * height * len(STATUSES)
    ).reshape(width * height, len(STATUSES))
    cells = [
        Cell(
            float(best[at]) if math.isfinite(best[at]) else None,
            int(counts[at]),
            STATUSES[int(reasons[at].argmax())]
            if counts[at] and not math.isfinite(best[at])
            else "",
        )
        for at in range(width * height)
    ]
    return tuple(tuple(cells[row * width : (row + 1) * width]) for row in range(height))


@dataclass(frozen=True)
class Convergence:
    """The best so far after each evaluation, and when: NaN before the first success."""

    seconds: Sequence[float]
    best_ns: Sequence[float]

    @classmethod
    def of(cls, columns: TrialColumns, rows: Sequence[int] | None = None) -> Convergence:
        """Of these rows in their order; of all where none are named."""
        chosen = np.arange(columns.rows) if rows is None else np.array(rows, dtype=np.int64)
        medians = columns.column("median_ns").astype(np.float64)[chosen]
        works = columns.measured()[chosen]
        best = np.minimum.accumulate(np.where(works, medians, np.inf)) if len(chosen) else medians
        best = np.where(np.isfinite(best), best, np.nan)
        return cls(columns.column("at_s")[chosen].tolist(), best.tolist())

    @property
    def final_ns(self) -> float | None:
        known = [ns for ns in self.best_ns if not math.isnan(ns)]
        return known[-1] if known else None

    def shares(self, against_ns: float) -> list[float]:
        """Of a time, as speed: 0 before the first success."""
        return [0.0 if math.isnan(ns) else against_ns / ns for ns in self.best_ns]


def colour(depth: float) -> tuple[int, int, int]:
    """For 0, the slowest, to 1."""
    at = min(max(depth, 0.0), 1.0) * (len(_SCALE) - 1)
    low = min(int(at), len(_SCALE) - 2)
    part = at - low
    mixed = [
        round((1 - part) * one + part * two)
        for one, two in zip(_SCALE[low], _SCALE[low + 1], strict=True)
    ]
    return mixed[0], mixed[1], mixed[2]


def places_for(width: int) -> int:
    """How many values an axis may have across, in columns of the narrow kind."""
    return max(4, (width - 12) // _NARROW)


def heat_lines(grid: HeatGrid, width: int, paint: Paint | None = None) -> list[str]:
    """In per cent of the best where there is room for numbers, else in shades. `paint` colours a
    cell's text by how fast it is, 0 to 1."""
    margin = min(18, max(len(shortened(place, 12)) for place in (*grid.y.places, grid.y.name)) + 2)
    numbers = len(grid.x.places) * _WIDE <= width - margin
    each = _WIDE if numbers else max(1, min(_NARROW, (width - margin) // len(grid.x.places)))
    heading = _heading(grid, each, width - margin)
    lines = [f"{shortened(grid.y.name, margin - 2):<{margin}}{heading}"]
    for place, row in zip(grid.y.places, grid.cells, strict=True):
        cells = (_cell_text(grid, cell, each, numbers, paint) for cell in row)
        lines.append(f"{shortened(place, margin - 2):<{margin}}{''.join(cells)}".rstrip())
    return [*lines, *_legend(grid, numbers)]


def _heading(grid: HeatGrid, each: int, room: int) -> str:
    names = [shortened(place, each - 1) for place in grid.x.places]
    if each < _WIDE and max(map(len, grid.x.places)) >= each:
        return shortened(f"{grid.x.name}: {grid.x.places[0]} to {grid.x.places[-1]}", room)
    values = "".join(f"{name:<{each}}" for name in names).rstrip()
    return shortened(f"{values}  {grid.x.name}", room)


def _cell_text(grid: HeatGrid, cell: Cell, each: int, numbers: bool, paint: Paint | None) -> str:
    depth, share = grid.depth(cell), grid.share(cell)
    if depth is None or share is None:
        text = (
            ("·" if not cell.failed else _SHORT.get(cell.failed, "fail"))
            if numbers
            else ("x" if cell.failed else "·")
        )
        return f"{shortened(text, each - 1):<{each}}"
    shade = SHADES[min(4, 1 + int(3.999 * depth))]
    if not numbers:
        return _painted(shade * max(1, each - 1), depth, paint) + " " * (each > 1)
    mark = "*" if share >= 1 else " "
    return _painted(f"{shade}{100 * share:4.0f}{mark}", depth, paint) + " "


def _painted(text: str, depth: float, paint: Paint | None) -> str:
    return text if paint is None else paint(text, depth)


def _legend(grid: HeatGrid, numbers: bool) -> list[str]:
    failed = sorted({cell.failed for row in grid.cells for cell in row if cell.failed})
    told = ["% of the best's speed, * the best" if numbers else "darker is faster"]
    if failed and numbers:
        told += [f"{_SHORT.get(one, 'fail')}: {one}" for one in failed]
    elif failed:
        told.append("x: none works")
    if any(not cell.tried for row in grid.cells for cell in row):
        told.append("·: not tried")
    if grid.others:
        told.append(f"best over {', '.join(grid.others)}")
    return told


def curve_lines(
    curve: Convergence, against_ns: float, width: int, height: int = 8, by_seconds: bool = False
) -> list[str]:
    """The best so far in per cent of `against_ns`, from left to right by evaluations or time."""
    shares = _spread(curve, against_ns, width - 7, by_seconds)
    low = min((share for share in shares if share > 0), default=0.0)
    base = 0.0 if low < 0.5 else 0.5
    lines = []
    for level in range(height, 0, -1):
        edge = base + (1 - base) * level / height
        step = (1 - base) / height
        bar = "".join(EIGHTHS[_eighth(share, edge - step, step)] for share in shares)
        label = f"{100 * edge:4.0f} %" if level in (height, height // 2) else ""
        lines.append(f"{label:<7}{bar}".rstrip())
    end = f"{curve.seconds[-1]:.3g} s" if by_seconds else f"{len(curve.best_ns):,} evaluations"
    return [*lines, f"{100 * base:4.0f} % └{'─' * max(1, len(shares) - len(end) - 2)} {end}"]


def _eighth(share: float, floor: float, step: float) -> int:
    return max(0, min(8, round(8 * (share - floor) / step)))


def _spread(curve: Convergence, against_ns: float, room: int, by_seconds: bool) -> list[float]:
    """One share for each column: what was known by then."""
    shares = curve.shares(against_ns)
    if not shares:
        return [0.0] * room
    if not by_seconds:
        return [shares[min(len(shares) - 1, at * len(shares) // room)] for at in range(room)]
    end = max(curve.seconds) or 1.0
    spread, known = [], 0.0
    moments = sorted(zip(curve.seconds, shares, strict=True))
    at = 0
    for column in range(room):
        while at < len(moments) and moments[at][0] <= end * (column + 1) / room:
            known = max(known, moments[at][1])
            at += 1
        spread.append(known)
    return spread


def bars(shares: Sequence[tuple[str, float]], width: int) -> list[str]:
    """`BM       ██████▏ 61 %`."""
    margin = min(20, max((len(shortened(name, 18)) for name, _ in shares), default=0) + 2)
    room = max(4, width - margin - 7)
    return [
        f"{shortened(name, margin - 2):<{margin}}{_bar(share, room)} {100 * share:.0f} %"
        for name, share in shares
    ]


def _bar(share: float, room: int) -> str:
    return "█" * max(0, min(room, round(share * room))) or "▏"


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"

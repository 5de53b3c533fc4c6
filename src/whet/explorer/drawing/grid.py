"""A heat map of two parameters, the others reduced to the best: what there is to draw of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.errors import UsageError, did_you_mean
from whet.explorer.columns import MEASURED, STATUSES, TrialColumns
from whet.explorer.importance import importance
from whet.explorer.values import value_text


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
    tried = standing & (status != STATUSES.index("untried"))
    medians = columns.column("median_ns").astype(np.float64)
    works = tried & np.isin(status, MEASURED) & (medians > 0)
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
        works = np.isin(columns.column("status")[chosen], MEASURED) & (medians > 0)
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

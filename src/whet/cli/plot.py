"""A figure in characters, for a terminal."""

from __future__ import annotations

import string
from itertools import pairwise
from typing import TYPE_CHECKING

from whet.cli.output import wrap

if TYPE_CHECKING:
    from whet.replay.figure import Figure

_MARGIN = 8


def plot(figure: Figure, width: int, height: int = 16) -> list[str]:
    """Lines of at most `width`: each series is a letter, the first drawn on top."""
    from whet.replay.figure import log_ticks, ticks

    across = width - _MARGIN - 1
    canvas = [[" "] * across for _ in range(height)]
    letters = dict(zip((one.name for one in figure.series), string.ascii_letters, strict=False))
    for series in reversed(figure.series):
        for x, y in _dense(series.x, series.y, series.dots, across):
            share, up = figure.place(x, y)
            column, row = round(share * (across - 1)), round((1 - up) * (height - 1))
            if 0 <= column < across and 0 <= row < height:
                canvas[row][column] = letters.get(series.name, "?")
    (left, right), (low, high) = figure.x_range, figure.y_range
    labels = [""] * height
    for tick in ticks(low, high, 4):
        labels[round((1 - figure.place(left, tick)[1]) * (height - 1))] = f"{tick:.4g}"
    lines = [
        f"{label:>{_MARGIN - 1}} ┤{''.join(row).rstrip()}"
        for label, row in zip(labels, canvas, strict=True)
    ]
    scale = [" "] * across
    for tick in log_ticks(left, right) if figure.log_x else ticks(left, right, 5):
        text, column = f"{tick:g}", round(figure.place(tick, low)[0] * (across - 1))
        start = max(0, min(column - len(text) // 2, across - len(text)))
        free = scale[max(0, start - 1) : start + len(text) + 1]
        if all(cell == " " for cell in free):
            scale[start : start + len(text)] = text
    lines.append(" " * _MARGIN + "└" + "─" * (across - 1))
    lines.append(" " * (_MARGIN + 1) + "".join(scale).rstrip())
    lines.append(f"{figure.y_label}; across: {figure.x_label}")
    legend = "  ".join(f"{letter} {name}" for name, letter in letters.items())
    return [line[:width] for line in lines[:-1]] + wrap(lines[-1], width) + wrap(legend, width)


def _dense(
    xs: tuple[float, ...], ys: tuple[float, ...], dots: bool, wanted: int
) -> list[tuple[float, float]]:
    """Enough points on the way for a line without holes."""
    points = list(zip(xs, ys, strict=True))
    if dots or len(points) < 2:
        return points
    between = max(1, 2 * wanted // len(points))
    dense = []
    for (x, y), (later_x, later_y) in pairwise(points):
        for at in range(between):
            share = at / between
            dense.append((x + share * (later_x - x), y + share * (later_y - y)))
    return [*dense, points[-1]]

"""The same drawings as SVG, with nothing from outside and no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from whet.explorer.drawing.grid import Cell, Convergence, HeatGrid

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
_FONT = 'font-family="system-ui, sans-serif" font-size="11" fill="currentColor"'
_CELL_W, _CELL_H, _LEFT, _TOP = 46, 24, 90, 22
_CURVE_W, _CURVE_H = 420, 150


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


def heat_svg(grid: HeatGrid) -> str:
    width = max(380, _LEFT + _CELL_W * len(grid.x.places) + 10)
    height = _TOP + _CELL_H * len(grid.y.places) + 34
    parts = [_text(_LEFT, 14, grid.x.name), _text(4, 14, grid.y.name)]
    for column, place in enumerate(grid.x.places):
        at = _LEFT + _CELL_W * column + _CELL_W / 2
        parts.append(_text(at, height - 18, _cut(place, 7), "middle"))
    for row, (place, cells) in enumerate(zip(grid.y.places, grid.cells, strict=True)):
        top = _TOP + _CELL_H * row
        parts.append(_text(_LEFT - 6, top + 16, _cut(place, 13), "end"))
        for column, cell in enumerate(cells):
            parts.append(_cell(grid, cell, _LEFT + _CELL_W * column, top))
    told = "in % of the best's speed"
    if grid.others:
        told += f"; best over {', '.join(grid.others)}"
    parts.append(_text(4, height - 4, _cut(told, int(width / 5.5))))
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
        parts.append(_text(110, top + 12, _cut(name, 16), "end"))
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


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"

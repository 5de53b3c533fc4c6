"""`Figure`: lines, bands and dots on two axes, written as SVG without a plotting library."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whet.core.errors import UsageError

WIDTH, HEIGHT = 980, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 330, 44, 56

DASHES = ' stroke-dasharray="6 3"'

# Okabe and Ito's, which the colour-blind can tell apart; then the same again, dashed.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7A5C00", "#000000")


@dataclass(frozen=True)
class Series:
    """`steps` holds each value until the next; `dots` draws no line. `titles` show on hovering."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    titles: tuple[str, ...] = ()
    steps: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Figure:
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def x_range(self) -> tuple[float, float]:
        every = [x for one in self.series for x in one.x if not self.log_x or x > 0]
        return _range(every)

    @property
    def y_range(self) -> tuple[float, float]:
        every = [y for one in self.series for y in (*one.y, *one.low, *one.high)]
        low, high = _range(every)
        margin = 0.04 * (high - low)
        return low - margin, high + margin

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point lies, as shares of the figure's width and height from the lower left."""
        (left, right), (low, high) = self.x_range, self.y_range
        if self.log_x:
            x, left, right = (math.log(max(value, left)) for value in (x, left, right))
        return (x - left) / (right - left), (y - low) / (high - low)


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers within the range: `ticks(0, 1)` is 0, 0.2, 0.4, 0.6, 0.8, 1."""
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * size for size in (1, 2, 5, 10) if power * size >= raw * 0.999)
    return [step * at for at in range(math.ceil(low / step), math.floor(high / step) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade, or only the decades where there are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    sizes = (1, 2, 5) if len(decades) <= 4 else (1,)
    listed = [size * 10.0**decade for decade in decades for size in sizes]
    return [tick for tick in listed if low * 0.999 <= tick <= high * 1.001]


def svg(figure: Figure) -> str:
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = figure.place(x, y)
        return _LEFT + across * width, _TOP + (1 - up) * height

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(_LEFT, 24, figure.title, size=15),
        *_axes(figure, at),
    ]
    for number, series in enumerate(figure.series):
        colour, dashed = COLOURS[number % len(COLOURS)], number >= len(COLOURS)
        parts += _drawn(series, colour, dashed, at)
        y = _TOP + 10 + 18 * number
        parts.append(
            f'<path d="M{WIDTH - _RIGHT + 10},{y - 2}h20" stroke="{colour}" '
            f'stroke-width="4"{DASHES if dashed else ""}/>'
        )
        parts.append(_text(WIDTH - _RIGHT + 34, y + 3, series.name))
    return "\n".join([*parts, "</svg>", ""])


def html_page(figure: Figure, after: str = "") -> str:
    """One file, nothing loaded from elsewhere; `after` is HTML for beneath the figure."""
    notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in figure.notes)
    title = html.escape(figure.title)
    style = "body{font-family:sans-serif;max-width:60em;margin:2em auto;line-height:1.4}"
    style += "table{border-collapse:collapse}td,th{padding:.1em .8em;text-align:right}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{style}</style></head><body>\n{svg(figure)}{notes}{after}</body></html>\n"
    )


def write_figure(figure: Figure, path: str, after: str = "") -> None:
    """As what the name ends in: `.svg`, `.html`, or `.png` where matplotlib is installed."""
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".png":
            _write_png(figure, path)
        elif suffix in (".svg", ".html"):
            text = svg(figure) if suffix == ".svg" else html_page(figure, after)
            Path(path).write_text(text, encoding="utf-8")
        else:
            raise UsageError(f"cannot write {path}: the name must end in .svg, .html or .png")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def png_possible() -> bool:
    return find_spec("matplotlib") is not None


def _range(values: Sequence[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def _axes(figure: Figure, at: Any) -> Iterable[str]:
    (left, right), (low, high) = figure.x_range, figure.y_range
    bottom = HEIGHT - _BOTTOM
    for tick in log_ticks(left, right) if figure.log_x else ticks(left, right):
        x, _ = at(tick, low)
        yield f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#ddd"/>'
        yield _text(x, bottom + 18, f"{tick:g}", anchor="middle")
    for tick in ticks(low, high):
        _, y = at(left, tick)
        yield f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" stroke="#ddd"/>'
        yield _text(_LEFT - 8, y + 4, f"{tick:.6g}", anchor="end")
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    yield _text(middle, HEIGHT - 14, figure.x_label, anchor="middle")
    y = (_TOP + bottom) / 2
    turned = f'transform="rotate(-90 16 {y})"'
    yield _text(16, y, figure.y_label, anchor="middle", more=turned)


def _drawn(series: Series, colour: str, dashed: bool, at: Any) -> Iterable[str]:
    points = [at(x, y) for x, y in zip(series.x, series.y, strict=True)]
    if series.low:
        upper = [at(x, y) for x, y in zip(series.x, series.high, strict=True)]
        lower = [at(x, y) for x, y in zip(series.x, series.low, strict=True)]
        outline = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *lower[::-1]])
        yield f'<polygon points="{outline}" fill="{colour}" opacity="0.15"/>'
    if points and not series.dots:
        dash = DASHES if dashed else ""
        path = _path(points, series.steps)
        yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>'
    if series.dots or series.titles:
        titles = series.titles or ("",) * len(points)
        for (x, y), title in zip(points, titles, strict=True):
            said = f"<title>{html.escape(title)}</title>" if title else ""
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}">{said}</circle>'


def _path(points: Sequence[tuple[float, float]], steps: bool) -> str:
    start, *rest = points
    path = [f"M{start[0]:.1f} {start[1]:.1f}"]
    for x, y in rest:
        path.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}")
    return "".join(path)


def _text(
    x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", more: str = ""
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" {more}>'
        f"{html.escape(text)}</text>"
    )


def _write_png(figure: Figure, path: str) -> None:
    if not png_possible():
        raise UsageError(
            f"{path} needs matplotlib, which is not installed; use .svg or .html instead"
        )
    canvas: Any = import_module("matplotlib.figure").Figure(
        figsize=(WIDTH / 100, HEIGHT / 100), dpi=160, layout="constrained"
    )
    axes = canvas.subplots()
    for number, series in enumerate(figure.series):
        colour = COLOURS[number % len(COLOURS)]
        style = "none" if series.dots else "--" if number >= len(COLOURS) else "-"
        drawn = "steps-post" if series.steps else "default"
        mark = "." if series.dots else ""
        axes.plot(
            series.x,
            series.y,
            label=series.name,
            color=colour,
            linestyle=style,
            drawstyle=drawn,
            marker=mark,
        )
        if series.low:
            axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15)
    axes.set(title=figure.title, xlabel=figure.x_label, ylabel=figure.y_label)
    axes.set_xscale("log" if figure.log_x else "linear")
    axes.grid(color="#ddd")
    axes.legend(frameon=False, fontsize=8)
    canvas.savefig(path)

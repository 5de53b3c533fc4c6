"""How numbers, tables and JSON look on stdout."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whet.cli.terminal.encoding import knows_all_characters
from whet.core.config import Config

PAGE = 80
NARROWEST = 40

_EIGHTHS = " ▏▎▍▌▋▊▉"


def columns() -> int:
    """The terminal's width; a page's where there is no terminal."""
    return max(NARROWEST, shutil.get_terminal_size((PAGE, 24)).columns)


def page() -> int:
    """The width for text that is read line by line: never more than a page."""
    return min(columns(), PAGE)


def three_digits(value: float) -> str:
    """`1.234` is `1.23`, `12.34` is `12.3`, `123.4` is `123`."""
    magnitude = abs(value)
    return f"{value:.{2 if magnitude < 9.995 else 1 if magnitude < 99.95 else 0}f}"


def _scaled(value: float, units: Sequence[str], step: float) -> str:
    index = 0
    while index + 1 < len(units) and abs(value) >= step * 0.9995:
        value /= step
        index += 1
    return f"{three_digits(value)} {units[index]}"


def ns_text(ns: float | None) -> str:
    """`12345.0` is `12.3 µs`; None is a dash."""
    return "–" if ns is None else _scaled(ns, ("ns", "µs", "ms", "s"), 1000)


def seconds_text(seconds: float) -> str:
    """`0.0123` is `12.3 ms`, `83` is `1 min 23 s`."""
    if seconds < 59.95:
        return ns_text(seconds * 1e9)
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def bytes_text(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    return _scaled(float(size), ("B", "KiB", "MiB", "GiB", "TiB"), 1024)


def count_text(number: int, noun: str) -> str:
    """`1 trial`, `1,234 trials`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def times_text(ratio: float) -> str:
    return f"{three_digits(ratio)}×"


def bar_text(fraction: float, width: int) -> str:
    """A bar of `width` cells at most, in eighths of a cell; anything above nothing shows."""
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    if fraction > 0:
        eighths = max(eighths, 1)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def first_line(text: str) -> str:
    """What a person reads first of an error: its first line that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def shorten(text: str, width: int) -> str:
    """Cuts in the middle of nothing: `BM=64 BN=32 UNR…`."""
    return text if len(text) <= width else text[: max(width - 1, 0)].rstrip() + "…"


def wrap(text: str, width: int, indent: int = 0) -> list[str]:
    """Lines of at most `width`; all but the first start `indent` further right."""
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, break_on_hyphens=False) or [
        ""
    ]


def told_by_values(configs: Sequence[Config], width: int) -> tuple[str, list[str]]:
    """`BM=64 BN=32` and `BM=16 BN=32` are `64` and `16`, "by BM, all with BN=32", where the whole
    would not fit; nothing is said where it does, or where they have other parameters."""
    names = [str(config) for config in configs]
    alike = len({tuple(config) for config in configs}) == 1
    if not alike or max(map(len, names)) <= width:
        return "", names
    varied = [name for name in configs[0] if len({config[name] for config in configs}) > 1]
    shared = Config({name: configs[0][name] for name in configs[0] if name not in varied})
    said = f"by {', '.join(varied)}" + (f"; all with {shared}" if shared else "")
    if not varied:
        return "", names
    return said, [" ".join(str(one[name]) or "''" for name in varied) for one in configs]


@dataclass(frozen=True)
class Column:
    """A `flexible` column gives way when the table is too wide; an `optional` one, in `narrowed`,
    before that."""

    title: str
    align: Literal["left", "right"] = "left"
    flexible: bool = False
    optional: bool = False


def right(title: str) -> Column:
    return Column(title, align="right")


def flexible(title: str) -> Column:
    return Column(title, flexible=True)


def narrowed(
    layout: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[Column], list[list[str]], list[str]]:
    """Leaves out optional columns until nothing has to be cut: first those that are the same in all
    rows, then the rightmost. Says what the former were: `status: ok in all`."""
    kept = list(range(len(layout)))
    said: list[str] = []

    def too_wide() -> bool:
        widths = [max(len(layout[i].title), *(len(row[i]) for row in rows)) for i in kept]
        return sum(widths) + 2 * (len(kept) - 1) > width

    optional = [i for i, column in enumerate(layout) if column.optional]
    same = [i for i in optional if len(rows) > 1 and len({row[i] for row in rows}) == 1]
    for i in (*same, *(i for i in reversed(optional) if i not in same)):
        if not rows or not too_wide():
            break
        kept.remove(i)
        said += [f"{layout[i].title}: {rows[0][i]} in all"] if i in same else []
    return [layout[i] for i in kept], [[row[i] for i in kept] for row in rows], said


def table(layout: Sequence[Column], rows: Iterable[Sequence[str]], width: int) -> list[str]:
    """Lines of at most `width`: a header, then the rows, cut where they must be."""
    cells = [[column.title for column in layout], *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(layout))]
    _shrink(widths, layout, width - 2 * (len(layout) - 1))
    lines = []
    for row in cells:
        fitted = (shorten(text, widths[i]) for i, text in enumerate(row))
        placed = (
            text.rjust(widths[i]) if layout[i].align == "right" else text.ljust(widths[i])
            for i, text in enumerate(fitted)
        )
        lines.append("  ".join(placed).rstrip()[:width])
    return lines


def natural_width(layout: Sequence[Column], rows: Iterable[Sequence[str]]) -> int:
    """How wide the table is where nothing has to give way."""
    cells = [[column.title for column in layout], *rows]
    return sum(max(len(row[i]) for row in cells) + 2 for i in range(len(layout))) - 2


def column_blocks(
    layout: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> list[list[int]]:
    """Which columns go into one table where all are too wide together: the first beside as many
    others as fit, then the first beside the next ones."""
    blocks, picked = [], [0]
    for at in range(1, len(layout)):
        tried = [*picked, at]
        wide = natural_width([layout[i] for i in tried], [[row[i] for i in tried] for row in rows])
        if wide > width and len(picked) > 1:
            blocks.append(picked)
            picked = [0]
        picked = [*picked, at]
    return [*blocks, picked]


def tables(layout: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """One table, or several with some of the columns each where one would have to be cut."""
    lines: list[str] = []
    for picked in column_blocks(layout, rows, width):
        body = table(
            [layout[at] for at in picked], [[row[at] for at in picked] for row in rows], width
        )
        lines += [*([""] if lines else []), *body]
    return lines


def _shrink(widths: list[int], layout: Sequence[Column], room: int) -> None:
    """Takes from the widest flexible column until the table fits or all of them are at 8."""
    flexible = [i for i, column in enumerate(layout) if column.flexible]
    while sum(widths) > room and flexible:
        widest = max(flexible, key=lambda i: widths[i])
        if widths[widest] <= 8:
            return
        widths[widest] -= 1


def fold(
    layout: Sequence[Column], rows: Sequence[Sequence[str]]
) -> tuple[dict[str, str], list[Column], list[tuple[str, ...]]]:
    """What columns say that are the same in all of several rows, by title; and the table without
    them. The first column stays."""
    same = [
        at for at in range(1, len(layout)) if len(rows) > 1 and len({row[at] for row in rows}) == 1
    ]
    kept = [at for at in range(len(layout)) if at not in same]
    return (
        {layout[at].title: rows[0][at] for at in same},
        [layout[at] for at in kept],
        [tuple(row[at] for at in kept) for row in rows],
    )


def fields(pairs: Mapping[str, str | Sequence[str]], width: int, margin: int = 9) -> list[str]:
    """`name    value`, one after another; long values go on beneath themselves."""
    lines: list[str] = []
    for name, value in pairs.items():
        texts = [value] if isinstance(value, str) else value
        body = [line for text in texts for line in wrap(text, width - margin)]
        for index, line in enumerate(body):
            lines.append(f"{name if index == 0 else '':<{margin}}{line}".rstrip())
    return lines


def print_json(value: Any) -> None:
    """Readers get every character; a terminal gets none that would steer it."""
    escape = not knows_all_characters(sys.stdout)
    text = json.dumps(value, indent=2, ensure_ascii=escape, allow_nan=False)
    print("\n".join(_escaped(line) for line in text.split("\n")))


def _escaped(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(mark if mark.isprintable() else json.dumps(mark)[1:-1] for mark in line)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line))


def say(text: str) -> None:
    """One line on stderr."""
    print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """What is printed may quote a stranger's file, which must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in text)


def colour_wanted(stream: Any) -> bool:
    """On a terminal that can, unless `NO_COLOR` is set to anything."""
    return bool(
        stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )

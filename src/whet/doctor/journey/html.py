"""Pieces of the report's page: text, tables, differences, bars on a time axis."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

# The explorer's colours; it asks for light or dark by a style of the first element.
STYLE = """
:root { color-scheme: light dark;
  --ground: light-dark(#f4f6f8, #0e131a); --panel: light-dark(#fff, #161d27);
  --ink: light-dark(#17202b, #e8edf3); --soft: light-dark(#5a6675, #9aa7b6);
  --line: light-dark(#cfd6de, #364252); --faint: light-dark(#e9edf1, #222b37);
  --accent: light-dark(#0b6bcb, #5eb1ff); --bad: light-dark(#b3261e, #ff8a80);
  --good: light-dark(#00734f, #5fd3a8); }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 16px; background: var(--ground);
  color: var(--ink); font: 14px/1.45 ui-sans-serif, system-ui, "Segoe UI", sans-serif;
  font-variant-numeric: tabular-nums; }
h1 { font-size: 20px; } h2 { font-size: 16px; margin: 0 0 4px; } h3 { font-size: 13px; }
nav { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 8px 0 16px; }
a { color: var(--accent); }
:root[data-theme=light] { color-scheme: light; } :root[data-theme=dark] { color-scheme: dark; }
.verdict { font-size: 16px; font-weight: 600; border-left: 5px solid var(--accent);
  padding-left: 10px; }
.map { display: flex; flex-wrap: wrap; gap: 8px 22px; padding: 0; list-style: none; }
.map li { position: relative; flex: 1 1 150px; max-width: 240px; }
.map li + li::before { content: "→"; position: absolute; left: -18px; top: 8px;
  color: var(--soft); }
.map a { display: block; height: 100%; padding: 6px 10px; text-decoration: none;
  background: var(--panel); border: 1px solid var(--soft); border-radius: 8px; }
.map a:hover { border-color: var(--accent); } .map b { display: block; }
.map span { color: var(--soft); font-size: 12px; }
section { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 12px 16px; margin-bottom: 12px; }
.cost, .soft { color: var(--soft); } .bad { color: var(--bad); } .good { color: var(--good); }
pre { background: var(--faint); border-radius: 6px; padding: 8px 10px; overflow: auto;
  max-height: 480px; font: 12px/1.4 ui-monospace, monospace; margin: 6px 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 6px 0; }
th, td { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid var(--faint);
  vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; }
td.number { text-align: right; white-space: nowrap; }
summary { cursor: pointer; padding: 2px 0; }
ins { color: var(--good); text-decoration: none; } del { color: var(--bad); text-decoration: none; }
svg { width: 100%; display: block; }
svg text { font-size: 11px; } svg rect { fill: var(--accent); }
svg rect.host { fill: var(--soft); } svg text { fill: var(--panel); }
"""


@dataclass(frozen=True)
class Section:
    """`cost` is what the step took or made, in a line."""

    id: str
    title: str
    cost: str
    body: tuple[str, ...]

    def __str__(self) -> str:
        told = f'<p class="cost">{escape(self.cost)}</p>' if self.cost else ""
        inner = f"<h2>{escape(self.title)}</h2>{told}{''.join(self.body)}"
        return f'<section id="{self.id}">{inner}</section>'


def section(id: str, title: str, cost: str, *body: str) -> Section:
    return Section(id, title, cost, body)


def stages(sections: Iterable[Section]) -> str:
    """The way, step by step, as links."""
    return "".join(
        f'<li><a href="#{one.id}"><b>{escape(one.title)}</b><span>{escape(one.cost)}</span></a>'
        for one in sections
    )


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def folded(summary: str, body: str, *, opened: bool = False) -> str:
    state = " open" if opened else ""
    return f"<details{state}><summary>{escape(summary)}</summary>{body}</details>"


def code(text: str) -> str:
    return f'<pre tabindex="0">{escape(text)}</pre>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    heads = "".join(f"<th>{escape(one)}</th>" for one in head)
    lines = []
    for row in rows:
        cells = (
            f'<td class="number">{escape(cell)}</td>'
            if at in numbers
            else f"<td>{escape(cell)}</td>"
            for at, cell in enumerate(row)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table><tr>{heads}</tr>{"".join(lines)}</table></div>'


def difference(before: str, after: str) -> str:
    """Empty where nothing differs."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[
        2:
    ]
    if not lines:
        return ""
    marked = []
    for line in lines:
        tag = {"+": "ins", "-": "del"}.get(line[:1], "")
        text = escape(line)
        marked.append(f"<{tag}>{text}</{tag}>" if tag else text)
    return f'<pre tabindex="0">{chr(10).join(marked)}</pre>'


Bar = tuple[str, float, float, int, str]


def timeline(bars: Sequence[Bar], unit: str = "ms") -> str:
    """Bars of (name, start, length, row, class) in microseconds."""
    if not bars:
        return ""
    end = max(start + length for _, start, length, _, _ in bars) or 1.0
    rows = max(row for _, _, _, row, _ in bars) + 1
    parts = []
    for name, start, length, row, kind in bars:
        x, width = 1000 * start / end, max(0.6, 1000 * length / end)
        told = escape(f"{name}: {_time(length)} from {_time(start)} on")
        parts.append(
            f'<rect class="{kind}" x="{x:.2f}" y="{row * 20}" width="{width:.2f}" height="17" '
            f'rx="2" fill-opacity="{0.9 - 0.06 * (row % 8):.2f}"><title>{told}</title></rect>'
        )
        if width > 7 * min(len(name), 12) + 6:
            shown = name if len(name) * 7 < width else f"{name[: int(width / 7) - 1]}…"
            parts.append(
                f'<text x="{x + 4:.2f}" y="{row * 20 + 12}" pointer-events="none">'
                f"{escape(shown)}</text>"
            )
    total = f'<p class="soft">0 to {_time(end)}</p>'
    named = f"{len(bars)} bars on a time axis, 0 to {_time(end)}"
    box = f'viewBox="0 0 1000 {rows * 20}" role="img" aria-label="{named}"'
    return f"<svg {box}>{''.join(parts)}</svg>{total}"


def _time(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} µs"


def whole(title: str, body: Sequence[str]) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )

"""Heat maps and curves in characters, for a terminal of any width."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.explorer.drawing.grid import Cell, Convergence, HeatGrid

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


def places_for(width: int) -> int:
    """How many values an axis may have across, in columns of the narrow kind."""
    return max(4, (width - 12) // _NARROW)


def heat_lines(grid: HeatGrid, width: int, paint: Paint | None = None) -> list[str]:
    """In per cent of the best where there is room for numbers, else in shades. `paint` colours a
    cell's text by how fast it is, 0 to 1."""
    margin = min(18, max(len(_cut(place, 12)) for place in (*grid.y.places, grid.y.name)) + 2)
    numbers = len(grid.x.places) * _WIDE <= width - margin
    each = _WIDE if numbers else max(1, min(_NARROW, (width - margin) // len(grid.x.places)))
    lines = [f"{_cut(grid.y.name, margin - 2):<{margin}}{_heading(grid, each, width - margin)}"]
    for place, row in zip(grid.y.places, grid.cells, strict=True):
        cells = (_cell(grid, cell, each, numbers, paint) for cell in row)
        lines.append(f"{_cut(place, margin - 2):<{margin}}{''.join(cells)}".rstrip())
    return [*lines, *_legend(grid, numbers)]


def _heading(grid: HeatGrid, each: int, room: int) -> str:
    names = [_cut(place, each - 1) for place in grid.x.places]
    if each < _WIDE and max(map(len, grid.x.places)) >= each:
        return _cut(f"{grid.x.name}: {grid.x.places[0]} to {grid.x.places[-1]}", room)
    values = "".join(f"{name:<{each}}" for name in names).rstrip()
    return _cut(f"{values}  {grid.x.name}", room)


def _cell(grid: HeatGrid, cell: Cell, each: int, numbers: bool, paint: Paint | None) -> str:
    depth, share = grid.depth(cell), grid.share(cell)
    if depth is None or share is None:
        text = (
            ("·" if not cell.failed else _SHORT.get(cell.failed, "fail"))
            if numbers
            else ("x" if cell.failed else "·")
        )
        return f"{_cut(text, each - 1):<{each}}"
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
    margin = min(20, max((len(_cut(name, 18)) for name, _ in shares), default=0) + 2)
    room = max(4, width - margin - 7)
    return [
        f"{_cut(name, margin - 2):<{margin}}{_bar(share, room)} {100 * share:.0f} %"
        for name, share in shares
    ]


def _bar(share: float, room: int) -> str:
    return "█" * max(0, min(room, round(share * room))) or "▏"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"

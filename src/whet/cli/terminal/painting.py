"""Cells in colour, on terminals that have it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from whet.cli.terminal.output import colour_wanted
from whet.explorer.drawings import colour


def painter() -> Callable[[str, float], str] | None:
    """Colours a text by how fast it stands for; None where stdout is no terminal with colours."""
    return _painted if colour_wanted(sys.stdout) else None


def _painted(text: str, depth: float) -> str:
    red, green, blue = colour(depth)
    ink = 16 if 0.3 * red + 0.6 * green + 0.1 * blue > 120 else 231
    return f"\033[38;5;{ink};48;5;{_nearest(red, green, blue)}m{text}\033[0m"


def _nearest(*mixed: int) -> int:
    """Of the 216 colours that every such terminal has."""
    red, green, blue = (round(part * 5 / 255) for part in mixed)
    return 16 + 36 * red + 6 * green + blue

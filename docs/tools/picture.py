"""The pictures of the pages: what a command printed, drawn as a terminal.

python docs/tools/picture.py                                      draw all again
python docs/tools/picture.py tune --record whet tune …            run a command first

`docs/pictures/NAME.txt` is the command and what it printed, `NAME.svg` is drawn from it. Fonts are
the reader's own, since a picture in a README may load nothing.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURES = Path(__file__).parents[1] / "pictures"
COLUMNS = 80

# What the first column of a summary says, and the bars.
_HEADING = r"(?m)^(?:best|first|equal|trials|space|check|notes|time)\b"
_BAR = r"[█▏▎▍▌▋▊▉]+"
_FONTS = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono"
_OWN_FONT = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


def record(name: str, command: list[str]) -> None:
    """Runs the command with 80 columns, and keeps what it prints on stdout."""
    printed = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": str(COLUMNS)},
    ).stdout
    shown = shlex.join([Path(command[0]).name, *command[1:]])
    lines = textwrap.wrap(
        f"$ {shown}", COLUMNS - 2, subsequent_indent="    ", break_on_hyphens=False
    )
    asked = " \\\n".join(lines)
    # Where it is kept differs from machine to machine.
    printed = printed.split("\nsaved in ")[0]
    (PICTURES / f"{name}.txt").write_text(f"{asked}\n{printed.rstrip()}\n")


def drawn(recorded: str, title: str) -> str:
    """The SVG of a terminal of 80 columns."""
    from rich._export_format import CONSOLE_SVG_FORMAT

    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    text = Text(recorded.rstrip("\n"))
    text.highlight_regex(r"^\$ (?:.*\\\n)*.*", "bold")
    text.highlight_regex(_HEADING, "bold cyan")
    text.highlight_regex(_BAR, "green")
    console.print(text, soft_wrap=False)
    return console.export_svg(
        title=title,
        theme=MONOKAI,
        unique_id="whet",
        code_format=_OWN_FONT.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code", _FONTS),
    )


def draw(name: str) -> None:
    recorded = (PICTURES / f"{name}.txt").read_text()
    (PICTURES / f"{name}.svg").write_text(drawn(recorded, "whet"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="only this picture")
    parser.add_argument(
        "--record", nargs=argparse.REMAINDER, metavar="COMMAND", help="run it first"
    )
    asked = parser.parse_args()
    if asked.record:
        record(asked.name, asked.record)
    for name in (
        [asked.name] if asked.name else sorted(path.stem for path in PICTURES.glob("*.txt"))
    ):
        draw(name)


if __name__ == "__main__":
    main()

"""Writes docs/command-line.md: what every command answers to --help.

python docs/tools/command_line.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.cli.app import root

PAGE = Path(__file__).parents[1] / "command-line.md"

_HEAD = """\
# Command line

<!-- Made by docs/tools/command_line.py: change the help texts, then run `make docs`. -->

The `--help` text of every command. Results go to stdout, progress and errors to stderr.
"""


def page() -> str:
    parts = [_HEAD]
    for names, text in _helps(root(), ("whet",), None):
        parts.append(f"{'#' * max(2, len(names))} `{' '.join(names)}`\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _helps(
    command: Any, names: tuple[str, ...], parent: Any
) -> Iterator[tuple[tuple[str, ...], str]]:
    context = command.context_class(
        command, info_name=names[-1], parent=parent, terminal_width=78, **command.context_settings
    )
    yield names, command.get_help(context).rstrip()
    if hasattr(command, "commands"):
        for name in command.list_commands(context):
            yield from _helps(command.get_command(context, name), (*names, name), context)


if __name__ == "__main__":
    PAGE.write_text(page())

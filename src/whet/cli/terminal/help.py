"""How `--help` reads: plain text, commands under headings, arguments without type notes."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

from typer.core import TyperCommand, TyperGroup

from whet.cli.terminal.encoding import readable

# In a help text: the strategies' names, which are read when somebody asks, since importing
# them takes longer than all the rest of a `--help`.
SEARCHES = "{searches}"


class OrderedGroup(TyperGroup):
    """Lists commands under the headings they were added with, in that order."""

    def get_help(self, ctx: Any) -> str:
        return _help_text(super().get_help(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                heading = getattr(command, "rich_help_panel", None)
                heading = heading if isinstance(heading, str) else "Commands"
                panels.setdefault(heading, []).append((name, command.get_short_help_str(64)))
        for heading, rows in panels.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


class PlainCommand(TyperCommand):
    """`whet tune [OPTIONS] FILE.py:NAME`, where typer would write `{FILE.py:NAME} <str>`."""

    def get_help(self, ctx: Any) -> str:
        return _help_text(super().get_help(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [
            piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments: list[tuple[str, str]] = []
        options: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                arguments.append((str(parameter.metavar), getattr(parameter, "help", None) or ""))
            else:
                record = parameter.get_help_record(ctx)
                options += [] if record is None else [(record[0], _named(record[1]))]
        for heading, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _named(text: str) -> str:
    if SEARCHES not in text:
        return text
    from whet.search import STRATEGIES

    return text.replace(SEARCHES, ", ".join(STRATEGIES))


def _row(line: str) -> str:
    """A row of two columns; the names may be too many for one line."""
    if SEARCHES not in line:
        return line
    indent = len(line) - len(line.lstrip().partition(" ")[2].lstrip())
    return textwrap.fill(_named(line), 78, subsequent_indent=" " * indent)


def _help_text(text: str) -> str:
    """Click writes UTF-8 to a terminal that it takes to be set up wrongly."""
    return readable("\n".join(map(_row, text.split("\n"))), sys.stdout)

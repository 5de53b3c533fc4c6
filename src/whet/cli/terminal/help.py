"""How `--help` reads: plain text, commands under headings, arguments without type notes."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from whet.cli.terminal.encoding import readable
from whet.core.errors import UsageError

# In a help text: the strategies' names, which are read when somebody asks, since importing
# them takes longer than all the rest of a `--help`.
SEARCHES = "{searches}"

_EXAMPLES = "\nExamples:\n"
_HELP = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class CommandPlace:
    """A command and the function that is it, `MODULE:FUNCTION` of `whet.cli.commands`: imported
    when somebody asks for it. The docstring is the help text, from `Examples:` on at its end."""

    name: str
    place: str
    about: str
    panel: str = "Commands"
    interspersed: bool = True

    def load(self) -> Any:
        module, _, function = self.place.partition(":")
        callback = getattr(import_module(f"whet.cli.commands.{module}"), function)
        about, examples, more = inspect.cleandoc(callback.__doc__).partition(_EXAMPLES)
        made = _typer()
        made.command(
            self.name,
            cls=PlainCommand,
            help=about,
            epilog=_as_typed((examples + more).lstrip("\n")),
            context_settings={**_HELP, "allow_interspersed_args": self.interspersed},
        )(callback)
        return typer.main.get_command(made)


@dataclass(frozen=True)
class CommandsPlace:
    """Commands under a common first word."""

    name: str
    about: str
    examples: str
    commands: tuple[CommandPlace, ...]
    panel: str = "Commands"

    def load(self) -> Any:
        return command_group(self.name, self.about, self.examples, self.commands)


Place = CommandPlace | CommandsPlace


def command_group(
    name: str,
    about: str,
    examples: str,
    places: Sequence[Place],
    callback: Callable[..., None] | None = None,
) -> Any:
    # Rich's help costs as much to import as all the rest of a `--help`; plain text reads as well.
    made = _typer(
        name=name,
        cls=CommandGroup,
        help=about,
        epilog=_as_typed(examples),
        invoke_without_command=True,
        context_settings=_HELP,
        callback=callback or help_without_command,
    )
    group: Any = typer.main.get_group(made)
    group.commands = _Commands(places)
    return group


def help_without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def _typer(**about: Any) -> typer.Typer:
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **about
    )


def _as_typed(text: str) -> str:
    """Paragraphs whose lines stay as they are."""
    return "\n\n".join(f"\b\n{paragraph}" for paragraph in text.strip("\n").split("\n\n"))


class _Commands(dict[str, Any]):
    """By name, in the order in which they are listed; each is imported when it is asked for."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(dict.fromkeys(one.name for one in places))
        self.places = {one.name: one for one in places}

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            self[name] = self.places[name].load()
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self:
            return default
        return self[name]


class CommandGroup(TyperGroup):
    """Lists commands under the headings they were added with, in that order."""

    def get_help(self, ctx: Any) -> str:
        return _help_text(super().get_help(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        places: dict[str, Place] = self.commands.places  # type: ignore[attr-defined]
        for one in places.values():
            panels.setdefault(one.panel, []).append((one.name, one.about))
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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """An option whose value is called `TABLE…` takes all words up to the next option."""
        many = {
            name
            for one in self.params
            for name in one.opts
            if str(one.metavar).endswith("…") and not str(one.metavar).endswith(",…")
        }
        spread: list[str] = []
        taking = ""
        for word in args:
            if taking and spread[-1] != taking and not word.startswith("-"):
                spread.append(taking)
            taking = word if word in many else "" if word.startswith("-") else taking
            spread.append(word)
        return super().parse_args(ctx, spread)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Options under the headings that they were declared with, those without one first."""
        arguments: list[tuple[str, str]] = []
        options: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                arguments.append((str(parameter.metavar), getattr(parameter, "help", None) or ""))
            elif (record := parameter.get_help_record(ctx)) is not None:
                heading = f"Options for {panel}" if (panel := _panel(parameter)) else "Options"
                options.setdefault(heading, []).append((record[0], _named(record[1])))
        for heading, rows in {"Arguments": arguments, **options}.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _panel(parameter: Any) -> str:
    panel = getattr(parameter, "rich_help_panel", None)
    return panel if isinstance(panel, str) else ""


def refuse_others(context: typer.Context, chosen: str) -> None:
    """`UsageError` for an option on the command line that is under a heading, as `a, b`, which
    does not name what was chosen."""
    for parameter in context.command.params:
        panel = _panel(parameter)
        source = context.get_parameter_source(str(parameter.name))
        typed = source is not None and source.name == "COMMANDLINE"
        if panel and typed and chosen not in panel.split(", "):
            name, path = parameter.opts[0], context.command_path
            raise UsageError(f"{name} is only for {panel} (see {path} --help)")


def _named(text: str) -> str:
    if SEARCHES not in text:
        return text
    from whet.search import STRATEGIES

    return text.replace(SEARCHES, ", ".join((*STRATEGIES, "llm")))


def _row(line: str) -> str:
    """A row of two columns; the names may be too many for one line."""
    if SEARCHES not in line:
        return line
    indent = len(line) - len(line.lstrip().partition(" ")[2].lstrip())
    return textwrap.fill(_named(line), 78, subsequent_indent=" " * indent)


def _help_text(text: str) -> str:
    """Click writes UTF-8 to a terminal that it takes to be set up wrongly."""
    return readable("\n".join(map(_row, text.split("\n"))), sys.stdout)

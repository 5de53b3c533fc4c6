"""What the commands under `whet export` have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.commands.tune_keys import typed_value
from whet.cli.terminal.output import say
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from whet.interop import Selection
    from whet.interop.files import OutFile
    from whet.store import StoreReader

KernelArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME|ID",
        help="A kernel name, the name it was tuned under, FILE.py:NAME, or the start of a "
        "workload id.",
        show_default=False,
    ),
]
DeviceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--device", metavar="NAME", help="Only results for this device, as shown by 'whet best'."
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="NAME=VALUE", help="Only keys with this value (repeatable)."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")]


def pairs(texts: Iterable[str] | None, option: str) -> dict[str, Any]:
    """`["E=8", "dtype=fp16"]` is `{"E": 8, "dtype": "fp16"}`."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise UsageError(f"{option} '{text}' is not valid; use NAME=VALUE")
        if name in found:
            raise UsageError(f"{option} gives '{name}' twice")
        found[name] = typed_value(value)
    return found


def selected(
    store: StoreReader,
    name: str,
    devices: Sequence[str] | None,
    where: Sequence[str] | None,
    source: str | None = None,
) -> Selection:
    """What a file is made from, of the fingerprint `source` where there is such; notes go to
    stderr."""
    from whet.cli.arguments.reading import chosen
    from whet.interop import select

    known = chosen(store, name)
    asked = pairs(where, "--where")
    selection = select(known, devices=devices or (), where=asked, source=source)
    for note in selection.notes:
        say(f"whet: note: {note}")
    return selection


def write_all(files: Iterable[OutFile], folder: Path, force: bool) -> None:
    """Prints where each is; one that would be lost stops it before anything is written."""
    from whet.interop.files import refuse_to_lose, write_out

    every = list(files)
    if not force:
        for file in every:
            refuse_to_lose(file, folder)
    for file in every:
        print(write_out(file, folder))

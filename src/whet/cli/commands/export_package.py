"""`whet export FORMAT` for the formats of installed packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.export_options import (
    DeviceOption,
    ForceOption,
    KernelArgument,
    WhereOption,
    selected,
    write_all,
)
from whet.cli.arguments.options import StoreOption
from whet.cli.terminal.help import OrderedGroup, PlainCommand
from whet.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from whet.interop import Write


class ExportGroup(OrderedGroup):
    """A name that is no command of ours is the format of an installed package."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or self._of_package(cmd_name)

    def _of_package(self, kind: str) -> Any:
        from whet.core.plugins import plugin_names
        from whet.interop import package_writer

        write = package_writer(kind)
        if write is None:
            names = (*self.commands, *plugin_names("format"))
            raise UsageError(f"unknown export format '{kind}'{did_you_mean(kind, names)}")
        return format_command(kind, write)


def format_command(kind: str, write: Write) -> Any:
    def export(
        name: KernelArgument,
        where: WhereOption = None,
        device: DeviceOption = None,
        out: Annotated[
            str, typer.Option("--out", metavar="FOLDER", help="Where to write (default: here).")
        ] = ".",
        force: ForceOption = False,
        store: StoreOption = None,
    ) -> None:
        from whet.cli.arguments.reading import open_known
        from whet.interop import MeasuredWorkload

        with open_known(store) as opened:
            measured = [
                MeasuredWorkload(workload, best, opened.trials(workload.id))
                for workload, best in selected(opened, name, device, where).picks
            ]
        write_all(write(measured), Path(out), force)

    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    about = f"Write {kind}, a format of an installed package."
    one.command(kind, cls=PlainCommand, help=about)(export)
    return typer.main.get_command(one)

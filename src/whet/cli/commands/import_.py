"""`whet import`: what others have found out, kept as theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments.options import StoreOption, resolved
from whet.cli.terminal.output import say
from whet.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whet.interop import Read
    from whet.replay import Table

EXAMPLES = """\b
Examples:
  whet import vllm-moe 'E=8,N=4096,device_name=NVIDIA_H200.json'
  whet import triton ~/.triton/cache --device "NVIDIA H200" --names M,N,K
  whet import kernel-tuner convolution-A100.json.gz
Formats: vllm-moe, vllm-fp8, sglang-moe, triton, python, kernel-tuner, t4,
and those of installed packages
"""


def import_results(
    kind: Annotated[
        str, typer.Argument(metavar="FORMAT", help="The format; see below.", show_default=False)
    ],
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Files to read.", show_default=False)
    ],
    kernel: Annotated[
        str | None, typer.Option("--kernel", metavar="NAME", help="Name for the kernel.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="The device it was measured on.")
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(
            "--names", metavar="A,B,…", help="Names for the parts of Triton's keys, in order."
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Import results from other tuners.

    They are marked as foreign: shown and exported like any other, but never compared with whet's
    own measurements. If one file cannot be read, nothing is imported.
    """
    from whet.cli.terminal.output import count_text
    from whet.core.plugins import plugin_names
    from whet.interop import ReadOptions, keep, package_reader
    from whet.store import open_store

    readers = _readers()
    read = readers.get(kind) or package_reader(kind)
    if read is None:
        known = (*readers, *plugin_names("format"))
        raise UsageError(f"unknown format '{kind}'{did_you_mean(kind, known)}")
    parts = tuple(name.strip() for name in names.split(",")) if names else ()
    if len(set(parts)) != len(parts) or not all(parts):
        raise UsageError(f"--names '{names}' is not valid; give each name once, such as M,N,K")
    options = ReadOptions(kernel, device, parts)
    readings = {file: read(Path(file), options) for file in files}
    with open_store(resolved(store=store).settings.store, direct=True) as opened:
        for file, reading in readings.items():
            workloads, trials = keep(opened, reading.findings)
            print(f"{file}: {count_text(workloads, 'workload')}, {count_text(trials, 'trial')} new")
            for note in reading.notes:
                say(f"whet: note: {note}")
        print(f"saved in {opened.location}")


def _readers() -> Mapping[str, Read]:
    """Tables of other tuners are read by the laboratory, which stands above `interop`."""
    from whet.interop import READERS, FileReading, ReadOptions
    from whet.interop.files import written_at
    from whet.replay import read_kernel_tuner, read_t4
    from whet.replay.findings import table_findings

    def reads(read: Callable[[Path], Table]) -> Read:
        def reading(path: Path, options: ReadOptions) -> FileReading:
            table = read(path)
            found = table_findings(table, options.kernel, options.device, written_at(path))
            return FileReading(tuple(found), table.notes)

        return reading

    return {**READERS, "kernel-tuner": reads(read_kernel_tuner), "t4": reads(read_t4)}

"""`whet import`: what others have found out, kept as theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from whet.cli.arguments.options import StoreOption, argument, option, resolved
from whet.cli.terminal.output import count_text, say
from whet.core.errors import UsageError, did_you_mean
from whet.core.plugins import plugin_names
from whet.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whet.interop import Read
    from whet.replay import Table


def import_results(
    kind: Annotated[str, argument("FORMAT", "The format; see below.")],
    files: Annotated[list[str], argument("FILE", "Files to read.")],
    kernel: Annotated[str | None, option("--kernel NAME", "Name for the kernel.")] = None,
    device: Annotated[str | None, option("--device NAME", "The device it was measured on.")] = None,
    names: Annotated[
        str | None, option("--names A,B,…", "Names for the parts of Triton's keys, in order.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Import results from other tuners.

    They are marked as foreign: shown and exported like any other, but never compared with whet's
    own measurements. If one file cannot be read, nothing is imported.

    Examples:
      whet import vllm-moe 'E=8,N=4096,device_name=NVIDIA_H200.json'
      whet import triton ~/.triton/cache --device "NVIDIA H200" --names M,N,K
      whet import kernel-tuner convolution-A100.json.gz
    Formats: vllm-moe, vllm-fp8, sglang-moe, sglang-fp8, triton, python,
    kernel-tuner, t4, and those of installed packages
    """
    from whet.interop import ReadOptions, keep, package_reader

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

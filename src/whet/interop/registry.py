"""The formats that can be read, by name, and those that other packages read or write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.core.plugins import Plugin, find_plugin
from whet.interop import python_source, sglang, triton_cache, vllm
from whet.interop.files import OutFile, ReadOptions
from whet.interop.findings import Finding
from whet.interop.selecting import MeasuredWorkload


@dataclass(frozen=True)
class FileReading:
    """What a file says, and what a person should know of it."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


# Takes one path, and raises a `FormatError` that names it for anything that is not of the format.
Read = Callable[[Path, ReadOptions], FileReading]

# The files of a format, relative to the folder that `--out` names.
Write = Callable[[Sequence[MeasuredWorkload]], Sequence[OutFile]]


@dataclass(frozen=True)
class Format:
    """What the entry point of a package's format leads to; one that is only read has no `write`."""

    read: Read | None = None
    write: Write | None = None


def _whole(read: Callable[[Path, ReadOptions], list[Finding]]) -> Read:
    return lambda path, options: FileReading(tuple(read(path, options)))


READERS: Mapping[str, Read] = {
    "vllm-moe": _whole(vllm.read_moe),
    "vllm-fp8": _whole(vllm.read_fp8),
    "sglang-moe": _whole(sglang.read_moe),
    "sglang-fp8": _whole(sglang.read_fp8),
    "triton": _whole(triton_cache.read),
    "python": _whole(python_source.read),
}


def package_reader(kind: str) -> Read | None:
    """Of an installed package's format; None where there is no such format, or it is not read."""
    plugin = find_plugin("format", kind)
    read = None if plugin is None else _format(plugin).read
    if plugin is None or read is None:
        return None

    def reading(path: Path, options: ReadOptions) -> FileReading:
        found = plugin.call(read, path, options)
        if not isinstance(found, FileReading):
            raise plugin.unfit(f"it read {type(found).__name__!r}, not a FileReading")
        return found

    return reading


def package_writer(kind: str) -> Write | None:
    """As `package_reader`."""
    plugin = find_plugin("format", kind)
    write = None if plugin is None else _format(plugin).write
    if plugin is None or write is None:
        return None

    def writing(measured: Sequence[MeasuredWorkload]) -> list[OutFile]:
        files = list(plugin.call(write, measured))
        if not all(isinstance(file, OutFile) for file in files):
            raise plugin.unfit("it gave files that are not OutFiles")
        return files

    return writing


def _format(plugin: Plugin) -> Format:
    if not isinstance(plugin.part, Format):
        raise plugin.unfit(f"it is a {type(plugin.part).__name__!r}, not a Format")
    return plugin.part

"""The formats that can be read, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from whet.interop import python_reading, sglang, triton_cache, vllm
from whet.interop.findings import Finding
from whet.interop.reading import ReadOptions


@dataclass(frozen=True)
class FileReading:
    """What a file says, and what a person should know of it."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


# Takes one path, and raises a `FormatError` that names it for anything that is not of the format.
Read = Callable[[Path, ReadOptions], FileReading]


def _whole(read: Callable[[Path, ReadOptions], list[Finding]]) -> Read:
    return lambda path, options: FileReading(tuple(read(path, options)))


READERS: Mapping[str, Read] = {
    "vllm-moe": _whole(vllm.read_moe),
    "vllm-fp8": _whole(vllm.read_fp8),
    "sglang-moe": _whole(sglang.read_moe),
    "triton": _whole(triton_cache.read),
    "python": _whole(python_reading.read),
}

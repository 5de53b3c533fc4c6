"""The formats that can be read, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from whet.interop import python_reading, sglang, triton_cache, vllm
from whet.interop.findings import Finding
from whet.interop.reading import ReadOptions

__all__ = ["READERS", "ReadOptions", "Reader", "Reading"]


@dataclass(frozen=True)
class Reading:
    """What a file says, and what a person should know of it."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Reader:
    """`read` takes one path and raises a `FormatError` that names it for anything else."""

    name: str
    about: str
    read: Callable[[Path, ReadOptions], Reading]


def _plain(read: Callable[[Path, ReadOptions], list[Finding]]) -> Callable[..., Reading]:
    return lambda path, options: Reading(tuple(read(path, options)))


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader("vllm-moe", "vLLM's fused MoE: E=…,N=…,device_name=….json", _plain(vllm.read_moe)),
        Reader(
            "vllm-fp8", "vLLM's block fp8 GEMM: N=…,K=…,device_name=….json", _plain(vllm.read_fp8)
        ),
        Reader(
            "sglang-moe", "SGLang's fused MoE, a folder a Triton version", _plain(sglang.read_moe)
        ),
        Reader(
            "triton",
            "Triton's cache: a folder of it, or *.autotune.json",
            _plain(triton_cache.read),
        ),
        Reader("python", "a table that 'whet export python' wrote", _plain(python_reading.read)),
    )
}

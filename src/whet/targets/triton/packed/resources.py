"""What a compiled kernel uses, read from the binary: `CompiledKernel` would need a device."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from whet.targets.triton.packed.architectures import Unit, occupancy

REGISTER_BYTES = 4

_REGISTERS, _FRAME = 0x2F, 0x11
_SIZED = 0x04


@dataclass(frozen=True)
class Resources:
    """`registers` a thread, and `spills`, those of them that are kept in memory, as Triton counts
    them: four bytes each. None is unknown. Occupancy is the share of warps that can be resident."""

    shared_bytes: int
    num_warps: int
    registers: int | None = None
    spills: int | None = None
    occupancy: float | None = None


def resources(kernel: Any, unit: Unit | None) -> Resources:
    """Of a `CompiledKernel`, on a device with such units."""
    metadata = kernel.metadata
    if "cubin" in kernel.asm:
        registers, spills = of_cubin(kernel.asm["cubin"], metadata.name)
    else:
        registers, spills = of_amdgcn(kernel.asm.get("amdgcn", ""))
    share = None
    if unit is not None:
        share = occupancy(unit, metadata.num_warps, registers, metadata.shared)
    return Resources(metadata.shared, metadata.num_warps, registers, spills, share)


def of_amdgcn(text: str) -> tuple[int | None, int | None]:
    """Vector registers and spills, from the metadata at the end of the assembly."""

    def count(name: str) -> int | None:
        found = re.search(rf"^[\s-]*\.{name}:\s+(\d+)\s*$", text, re.MULTILINE)
        return None if found is None else int(found[1])

    return count("vgpr_count"), count("vgpr_spill_count")


def of_cubin(binary: bytes, kernel: str) -> tuple[int | None, int | None]:
    """Registers and spills of a kernel in an ELF file of NVIDIA's; None for what is not there."""
    try:
        sections = dict(_sections(binary))
        symbols, names = sections[".symtab"], sections[".strtab"]
        values = {
            (attribute, _symbol(symbols, names, index)): value
            for attribute, index, value in _attributes(sections[".nv.info"])
        }
    except (LookupError, ValueError, OverflowError, struct.error):
        return None, None
    frame = values.get((_FRAME, kernel))
    return values.get((_REGISTERS, kernel)), None if frame is None else frame // REGISTER_BYTES


def _sections(binary: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and contents of each section of a 64-bit little-endian ELF file."""
    if binary[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQII", binary, table + i * size) for i in range(count)]
    names = _body(binary, headers[names_at])
    for header in headers:
        yield _text(names, header[0]), _body(binary, header)


def _body(binary: bytes, header: tuple[int, ...]) -> bytes:
    return binary[header[4] : header[4] + header[5]]


def _text(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode("utf-8", "replace")


def _symbol(symbols: bytes, names: bytes, index: int) -> str:
    (name,) = struct.unpack_from("<I", symbols, 24 * index)
    return _text(names, name)


def _attributes(body: bytes) -> Iterator[tuple[int, int, int]]:
    """Attribute, symbol and value of each entry that is a pair of words; others are skipped."""
    at = 0
    while at + 4 <= len(body):
        form, attribute, size = struct.unpack_from("<BBH", body, at)
        at += 4
        if form != _SIZED:
            continue
        if size == 8 and attribute in (_REGISTERS, _FRAME):
            symbol, value = struct.unpack_from("<II", body, at)
            yield attribute, symbol, value
        at += size

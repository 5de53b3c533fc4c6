"""GPU architectures by name, with what their makers document, and what a kernel takes of one.

No device is asked. Units: the table of technical specifications in NVIDIA's CUDA programming guide
and the rules of `cuda_occupancy.h`; AMD's instruction-set manuals and LLVM's `AMDGPUBaseInfo.cpp`.
Names of GPUs: the compute capabilities at developer.nvidia.com/cuda-gpus; ROCm's table of GPU
specifications and LLVM's AMDGPU guide. What a kernel takes is read from its binary, since
`CompiledKernel` would need a device.
"""

from __future__ import annotations

import difflib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from whet.core.errors import UsageError
from whet.core.workload import Device, Limits
from whet.targets.triton.request import DeviceLimits

_NAMES = {
    "sm_60": "p100",
    "sm_61": "p40 p4 gtx1080 gtx1080ti",
    "sm_70": "v100 titanv",
    "sm_75": "t4 rtx2060 rtx2070 rtx2080 rtx2080ti rtx8000 titanrtx gtx1650 gtx1660",
    "sm_80": "a100 a800 a30",
    "sm_86": "a10 a10g a2 a16 a40 rtx3050 rtx3060 rtx3060ti rtx3070 rtx3070ti rtx3080 rtx3080ti"
    " rtx3090 rtx3090ti a2000 a4000 a4500 a5000 a5500 a6000",
    "sm_87": "orin",
    "sm_89": "l4 l20 l40 l40s rtx4050 rtx4060 rtx4060ti rtx4070 rtx4070super rtx4070ti"
    " rtx4070tisuper rtx4080 rtx4080super rtx4090 rtx4090d rtx2000ada rtx4000ada rtx4500ada"
    " rtx5000ada rtx6000ada",
    "sm_90": "h100 h200 h800 h20 gh200",
    "sm_100": "b200 gb200",
    "sm_103": "b300 gb300",
    "sm_110": "thor",
    "sm_120": "rtx5050 rtx5060 rtx5060ti rtx5070 rtx5070ti rtx5080 rtx5090 rtxpro4000 rtxpro4500"
    " rtxpro5000 rtxpro6000",
    "sm_121": "gb10",
    "gfx906": "mi50 mi60",
    "gfx908": "mi100",
    "gfx90a": "mi210 mi250 mi250x",
    "gfx942": "mi300 mi300a mi300x mi308x mi325x",
    "gfx950": "mi350 mi350x mi355x",
    "gfx1030": "rx6800 rx6800xt rx6900xt rx6950xt w6800",
    "gfx1100": "rx7900gre rx7900xt rx7900xtx w7800 w7900",
    "gfx1101": "rx7700xt rx7800xt w7700",
    "gfx1102": "rx7600 rx7600xt",
    "gfx1150": "890m",
    "gfx1151": "8060s",
    "gfx1200": "rx9060 rx9060xt",
    "gfx1201": "rx9070 rx9070xt rx9070gre r9700",
}

_SEVERAL = {
    "ampere": "a100 a10",
    "blackwell": "b200 b300 rtx5090",
    "rtx6000": "rtx6000ada rtxpro6000 a6000",
    "rtx5000": "rtx5000ada rtxpro5000 a5000",
    "rtx4000": "rtx4000ada rtxpro4000 a4000",
    "rdna3": "rx7900xtx rx7800xt rx7600",
    "rdna4": "rx9070xt rx9060xt",
    "mi200": "mi210 mi250 mi250x",
}

_FAMILIES = {
    "volta": "v100",
    "turing": "t4",
    "ada": "rtx4090",
    "adalovelace": "rtx4090",
    "hopper": "h100",
    "cdna1": "mi100",
    "cdna2": "mi250",
    "cdna3": "mi300x",
    "cdna4": "mi355x",
}

EXAMPLES = "a100, h100, b200, l40s, rtx4090, mi300x"

# What makers and shops put around a name, and what only says how a GPU is built in.
_MAKERS = re.compile(r"^(?:nvidia|amd|geforce|tesla|quadro|instinct|radeon|jetson|agx|rtx|gtx|rx)+")
_BUILD = re.compile(
    r"\d+gi?b|sxm\d*|pcie|nvl\d*|oam|hbm\d\w*|gpu|generation|edition|server|workstation|graphics"
)


def _by_key() -> Iterator[tuple[str, tuple[str, str]]]:
    for architecture, names in _NAMES.items():
        for name in names.split():
            yield _key(name), (name, architecture)


def _key(text: str) -> str:
    """`NVIDIA H100 80GB HBM3`, `nvidia-h100` and `H100` are all `h100`."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    kept = [word for word in words if _BUILD.fullmatch(word) is None]
    if "pro" in "".join(kept):  # the RTX PRO cards say that they are Blackwells
        kept = [word for word in kept if word != "blackwell"]
    return _MAKERS.sub("", "".join(kept))


_PRODUCTS = dict(_by_key())
_MEANT_BY = {_key(name): names for name, names in _SEVERAL.items()}


def product(text: str) -> tuple[str, str] | None:
    """The plain name of the GPU that is meant, and its architecture: `("h100", "sm_90")`."""
    key = _key(text)
    if key in _FAMILIES:
        return key, _PRODUCTS[_key(_FAMILIES[key])][1]
    return _PRODUCTS.get(key)


def meant_by(text: str) -> list[str]:
    """The GPUs that a name may stand for where it stands for several, each with its architecture;
    for a name that is none, the nearest of the same family."""
    key = _key(text)
    several = _MEANT_BY.get(key)
    if several is not None:
        return [_labelled(_key(name)) for name in several.split()]
    known = [*_PRODUCTS, *_FAMILIES, *(_key(name) for name in _NAMES)]
    # The letters, or the first digits where there are none, say which family a GPU is of.
    family = [name for name in known if _family(name) == _family(key) or key.isalpha()]
    close = difflib.get_close_matches(key, family, n=5, cutoff=0.6)
    close.sort(key=lambda name: not name.startswith(key))
    return [_labelled(close[0])] if close else []


def _family(key: str) -> str:
    letters = re.match("[a-z]*", key)
    return letters[0] if letters and letters[0] else key[:2]


def _labelled(key: str) -> str:
    if key in _PRODUCTS or key in _FAMILIES:
        name, architecture = _PRODUCTS.get(key) or (key, _PRODUCTS[_key(_FAMILIES[key])][1])
        return f"{name} ({architecture})"
    return next(name for name in _NAMES if _key(name) == key)


KIB = 1024
THREADS = 1024


@dataclass(frozen=True)
class Unit:
    """One multiprocessor (NVIDIA), compute unit (CDNA) or workgroup processor (RDNA).

    Registers are 32 bits a thread, given to a warp `register_step` a thread at a time, in each of
    four parts of the unit. `reserved` is shared memory that the system takes of every block.
    """

    warps: int
    blocks: int
    shared: int
    shared_a_block: int
    registers_a_part: int
    register_step: int
    warp_size: int = 32
    reserved: int = 0
    shared_step: int = 128
    tensor_memory: int | None = None


def _nvidia(
    warps: int, blocks: int, shared: int, *, tensor_memory: int | None = None, reserved: int = KIB
) -> Unit:
    return Unit(
        warps=warps,
        blocks=blocks,
        shared=shared * KIB,
        shared_a_block=shared * KIB - reserved,
        registers_a_part=512,  # 64 Ki in all, of 32 threads in each of four parts
        register_step=8,
        reserved=reserved,
        tensor_memory=tensor_memory,
    )


def _cdna(shared: int, shared_step: int) -> Unit:
    return Unit(
        warps=32,
        blocks=16,
        shared=shared * KIB,
        shared_a_block=shared * KIB,
        registers_a_part=512,
        register_step=8,
        warp_size=64,
        shared_step=shared_step,
    )


_RDNA = Unit(
    warps=64,
    blocks=32,
    shared=128 * KIB,
    shared_a_block=64 * KIB,
    registers_a_part=1536,
    register_step=24,
    shared_step=KIB,
)

_UNITS: dict[str, Unit] = {
    "sm_75": _nvidia(32, 16, 64, reserved=0),
    "sm_80": _nvidia(64, 32, 164),
    "sm_86": _nvidia(48, 16, 100),
    "sm_87": _nvidia(48, 16, 164),
    "sm_89": _nvidia(48, 24, 100),
    "sm_90": _nvidia(64, 32, 228),
    "sm_100": _nvidia(64, 32, 228, tensor_memory=512),
    "sm_103": _nvidia(64, 32, 228, tensor_memory=512),
    "sm_120": _nvidia(48, 24, 100),
    "gfx90a": _cdna(64, 512),
    "gfx942": _cdna(64, 512),
    "gfx950": _cdna(160, 1280),
    "gfx1100": _RDNA,
    "gfx1101": _RDNA,
    "gfx1200": _RDNA,
    "gfx1201": _RDNA,
}

_NVIDIA = re.compile(r"(?:sm|compute)?_?(\d{2,3})[af]?")
_AMD = re.compile(r"gfx[0-9a-f]{3,4}")

# Triton's own list begins with compute capability 8.0; of AMD's, these have no code generator for
# products of matrices.
_OLDEST_NVIDIA = 80
_UNSUPPORTED_AMD = ("gfx900", "gfx1010", "gfx1030", "gfx1031", "gfx1032")


@dataclass(frozen=True)
class Architecture:
    """`unit` is None for one that the table does not know: then nothing is refused early.

    `products` are the GPUs that were asked for by name.
    """

    name: str
    unit: Unit | None
    products: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """`h100 (sm_90)` where a GPU was asked for by its name, else `sm_90`."""
        return f"{', '.join(self.products)} ({self.name})" if self.products else self.name

    @property
    def doubt(self) -> str:
        """Why Triton may fail for it, whatever the kernel; empty where it does not."""
        if self.name in _UNSUPPORTED_AMD:
            return f"Triton does not support {self.label}; kernels with tl.dot will fail"
        if self.name.startswith("sm_") and int(self.name[3:]) < _OLDEST_NVIDIA:
            return (
                f"Triton supports NVIDIA GPUs from sm_{_OLDEST_NVIDIA}; for {self.label} it "
                "may compile without tensor cores, or fail"
            )
        return ""

    @property
    def target(self) -> Any:
        """Triton's `GPUTarget`, as the driver of such a device would give it."""
        from triton.backends.compiler import GPUTarget

        if self.name.startswith("sm_"):
            return GPUTarget("cuda", int(self.name[3:]), 32)
        warp = 32 if len(self.name) > len("gfx942") else 64
        return GPUTarget("hip", self.name, warp)

    @property
    def capability(self) -> tuple[int, int]:
        """As torch says it: `(9, 0)` for sm_90, `(9, 4)` for gfx942, `(11, 0)` for gfx1100."""
        if self.name.startswith("sm_"):
            return divmod(int(self.name[3:]), 10)
        return int(self.name[3:-2]), int(self.name[-2], 16)

    @property
    def limits(self) -> DeviceLimits:
        if self.unit is None:
            return DeviceLimits(threads=THREADS)
        return DeviceLimits(self.unit.shared_a_block, THREADS, self.unit.tensor_memory)

    @property
    def device(self) -> Device:
        """Some device of this architecture, where no particular one is meant."""
        unit = self.unit
        return Device(
            name=self.name,
            vendor="nvidia" if self.name.startswith("sm_") else "amd",
            architecture=self.name,
            driver="",
            limits=Limits(
                shared_memory_bytes=None if unit is None else unit.shared_a_block,
                registers=None if unit is None else 4 * unit.registers_a_part * unit.warp_size,
                threads=THREADS,
            ),
        )


def architecture(name: str) -> Architecture:
    """`sm_90` (also `sm90`, `sm_90a`, `90`, `9.0`), `gfx942`, or a GPU that is one: `H100`.

    Anything else is a `UsageError` that names what may have been meant.
    """
    text = name.strip().lower()
    known = product(text)
    if known is not None:
        return Architecture(known[1], _UNITS.get(known[1]), (known[0],))
    text = text.partition(":")[0]  # the driver of an MI300X says gfx942:sramecc+:xnack-
    nvidia = _NVIDIA.fullmatch(re.sub(r"(?<=\d)\.(?=\d)", "", text))
    if nvidia is not None:
        text = f"sm_{nvidia[1]}"
    elif _AMD.fullmatch(text) is None:
        raise UsageError(_unknown(name))
    return Architecture(text, _UNITS.get(text))


def architectures(names: Iterable[str]) -> list[Architecture]:
    """Each architecture once, with all the GPUs of it that were named."""
    found: dict[str, Architecture] = {}
    for name in names:
        one = architecture(name)
        known = found.setdefault(one.name, one)
        products = dict.fromkeys((*known.products, *one.products))
        found[one.name] = replace(known, products=tuple(products))
    return list(found.values())


def _unknown(name: str) -> str:
    meant = meant_by(name)
    if len(meant) > 1:
        return f"'{name}' is ambiguous; use one of {', '.join(meant)}"
    hint = f"; did you mean {meant[0]}?" if meant else ";"
    return (
        f"'{name}' is not a known GPU or architecture{hint} use an architecture such as sm_90 "
        f"or gfx942, or a GPU name such as {EXAMPLES}"
    )


def resident_blocks(
    unit: Unit, warps: int, registers: int | None, shared_bytes: int
) -> dict[str, int] | None:
    """How many blocks of so many warps a unit could hold, by what each resource allows; None where
    the registers are not known."""
    if registers is None or warps < 1:
        return None
    steps = -(-max(registers, 1) // unit.register_step) * unit.register_step
    taken = shared_bytes + unit.reserved
    taken = -(-taken // unit.shared_step) * unit.shared_step
    return {
        "registers": 4 * (unit.registers_a_part // steps) // warps,
        "warps": unit.warps // warps,
        "shared memory": unit.shared // taken if taken else unit.blocks,
        "blocks": unit.blocks,
    }


def occupancy(unit: Unit, warps: int, registers: int | None, shared_bytes: int) -> float | None:
    """Of the warps a unit can hold, the share it holds of a kernel whose blocks have so many.

    None where a block does not fit at all, or its registers are not known.
    """
    held = resident_blocks(unit, warps, registers, shared_bytes)
    blocks = 0 if held is None else min(held.values())
    return blocks * warps / unit.warps if blocks else None


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

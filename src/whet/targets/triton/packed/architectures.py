"""GPU architectures by name, with what their makers document: no device is asked.

NVIDIA: the table of technical specifications in the CUDA programming guide, and the rules of
`cuda_occupancy.h`. AMD: the instruction-set manuals, and LLVM's `AMDGPUBaseInfo.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from whet.core.errors import UsageError
from whet.core.workload import Device, Limits
from whet.targets.triton.compiler.request import DeviceLimits
from whet.targets.triton.packed.products import EXAMPLES, meant_by, product

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


def occupancy(unit: Unit, warps: int, registers: int | None, shared_bytes: int) -> float | None:
    """Of the warps a unit can hold, the share it holds of a kernel whose blocks have so many.

    None where a block does not fit at all, or its registers are not known.
    """
    if registers is None or warps < 1:
        return None
    steps = -(-max(registers, 1) // unit.register_step) * unit.register_step
    by_registers = 4 * (unit.registers_a_part // steps) // warps
    by_warps = unit.warps // warps
    taken = shared_bytes + unit.reserved
    taken = -(-taken // unit.shared_step) * unit.shared_step
    by_shared = unit.shared // taken if taken else unit.blocks
    blocks = min(by_registers, by_warps, by_shared, unit.blocks)
    return blocks * warps / unit.warps if blocks else None

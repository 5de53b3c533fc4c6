"""What a kernel uses, from its binary and from what makers document of their GPUs."""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")

from triton.compiler import ASTSource  # noqa: E402

from whet.core.errors import UsageError  # noqa: E402
from whet.targets.triton.packed.architectures import (  # noqa: E402  # noqa: E402
    architecture,
    occupancy,
    of_amdgcn,
    of_cubin,
    resources,
)

tl: Any = triton.language


@triton.jit
def product(a, b, c, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


def compiled(arch: str, block: int, **options: Any) -> Any:
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "BLOCK": "constexpr"}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(3)}
    source = ASTSource(product, types, {"BLOCK": block}, aligned)
    return triton.compile(source, target=architecture(arch).target, options=options)


def by_cuobjdump(cubin: bytes, folder: Path) -> tuple[int, int]:
    """NVIDIA's own tool, which comes with Triton: registers, and bytes of stack."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    if not tool.exists():
        pytest.skip("this Triton comes without cuobjdump")
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    text = subprocess.run(
        [tool, "-res-usage", path], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found is not None
    return int(found[1]), int(found[2])


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arch", "options"), [("sm_80", {}), ("sm_80", {"maxnreg": 32}), ("sm_90", {})]
)
def test_registers_and_spills_are_what_nvidias_own_tool_reads(
    arch: str, options: dict[str, int], tmp_path: Path
) -> None:
    kernel = compiled(arch, 64, **options)

    registers, spills = of_cubin(kernel.asm["cubin"], "product")

    expected, stack = by_cuobjdump(kernel.asm["cubin"], tmp_path)
    assert (registers, spills) == (expected, stack // 4)


@pytest.mark.medium
def test_a_kernel_that_may_have_few_registers_spills() -> None:
    few = resources(compiled("sm_80", 64, maxnreg=32), architecture("sm_80").unit)
    many = resources(compiled("sm_80", 64), architecture("sm_80").unit)

    assert few.registers == 32
    assert few.spills
    assert many.spills == 0


@pytest.mark.medium
def test_registers_of_amd_come_from_the_assembly() -> None:
    kernel = compiled("gfx942", 32)

    found = resources(kernel, architecture("gfx942").unit)

    assert f".vgpr_count:     {found.registers}" in kernel.asm["amdgcn"]
    assert found.spills == 0
    assert found.occupancy is not None


@pytest.mark.parametrize("binary", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 200])
def test_nothing_is_known_of_what_is_no_binary(binary: bytes) -> None:
    assert of_cubin(binary, "product") == (None, None)


def test_nothing_is_known_of_an_assembly_without_metadata() -> None:
    assert of_amdgcn("s_endpgm") == (None, None)


# As NVIDIA's occupancy calculator gives them.
@pytest.mark.parametrize(
    ("arch", "warps", "registers", "shared", "expected"),
    [
        ("sm_90", 4, 32, 0, 1.0),
        ("sm_90", 4, 64, 0, 0.5),
        ("sm_90", 8, 255, 0, 8 / 64),
        ("sm_90", 8, 168, 227 * 1024, 8 / 64),
        ("sm_80", 4, 96, 0, 20 / 64),
        ("sm_80", 1, 16, 0, 32 / 64),
        ("sm_86", 4, 40, 48 * 1024, 8 / 48),
        ("sm_89", 4, 128, 0, 16 / 48),
        ("gfx942", 4, 128, 0, 16 / 32),
        ("gfx942", 4, 64, 33 * 1024, 4 / 32),
    ],
)
def test_occupancy_is_bound_by_whatever_runs_out_first(
    arch: str, warps: int, registers: int, shared: int, expected: float
) -> None:
    unit = architecture(arch).unit
    assert unit is not None

    assert occupancy(unit, warps, registers, shared) == pytest.approx(expected)


def test_a_block_that_does_not_fit_has_no_occupancy() -> None:
    unit = architecture("sm_90").unit
    assert unit is not None

    assert occupancy(unit, 32, 255, 0) is None


def test_a_block_may_have_as_much_shared_memory_as_the_guide_says() -> None:
    kib = {name: architecture(name).limits.shared_bytes for name in ("sm_80", "sm_90", "gfx942")}

    assert kib == {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "gfx942": 64 * 1024}


@pytest.mark.parametrize("name", ["sm_90", "sm_90a", "SM_90 ", "90", "sm90", "9.0", "compute_90"])
def test_an_architecture_has_several_spellings(name: str) -> None:
    assert architecture(name).name == "sm_90"
    assert architecture(name).target.arch == 90


def test_an_architecture_that_the_table_lacks_is_compiled_for_without_limits() -> None:
    unknown = architecture("sm_110")

    assert unknown.unit is None
    assert unknown.limits.shared_bytes is None


@pytest.mark.parametrize("name", ["", "tpu", "sm_", "gfx", "sm_90,sm_80"])
def test_what_is_no_architecture_is_refused_with_examples_of_such(name: str) -> None:
    with pytest.raises(UsageError, match="such as sm_90 or gfx942"):
        architecture(name)


@pytest.mark.parametrize(("name", "warp"), [("gfx942", 64), ("gfx90a", 64), ("gfx1100", 32)])
def test_amds_warps_are_of_two_sizes(name: str, warp: int) -> None:
    assert architecture(name).target.warp_size == warp

"""Kernels whose sums depend on which program comes first: they add by atomics, or in turns."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl


@triton.jit
def dot_product(x, y, out, n, BLOCK: tl.constexpr):
    """One number, to which every program adds its part."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    part = tl.load(x + offsets, mask=mask, other=0.0) * tl.load(y + offsets, mask=mask, other=0.0)
    tl.atomic_add(out, tl.sum(part))


@triton.jit
def column_sums(x, out, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """The gradient of a bias: each program adds some rows to all columns."""
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = (row[:, None] < rows) & (offsets[None, :] < columns)
    tile = tl.load(x + row[:, None] * columns + offsets[None, :], mask=mask, other=0.0)
    tl.atomic_add(out + offsets, tl.sum(tile, 0), mask=offsets < columns)


@triton.jit
def scattered_sums(x, index, out, n, BLOCK: tl.constexpr):
    """The gradient of an embedding: many elements go to few places."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    place = tl.load(index + offsets, mask=mask, other=0)
    tl.atomic_add(out + place, tl.load(x + offsets, mask=mask, other=0.0), mask=mask)


@triton.jit
def split_product(a, b, c, m, n, k, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    """A matrix product whose long sums are divided among programs."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(tl.program_id(2) * BLOCK, k, SPLIT * BLOCK):
        inner = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * k + inner[None, :])
        right = tl.load(b + inner[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.atomic_add(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def locked_sums(x, out, lock, rows, columns, BLOCK: tl.constexpr):
    """The gradient of a layer norm's weight: whoever has the lock adds its row."""
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    part = tl.load(x + row * columns + offsets, mask=mask, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    total = tl.load(out + offsets, mask=mask, other=0.0) + part
    tl.store(out + offsets, total, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def mean_squares(x, out, rows, columns, BLOCK: tl.constexpr):
    """A norm over batches: each program adds the squares of a tile to its group's number."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < rows * columns
    value = tl.load(x + offsets, mask=mask, other=0.0)
    tl.atomic_add(out + (tl.program_id(0) % 8), tl.sum(value * value) / columns)


@dataclass(frozen=True)
class AtomicKernel:
    """`make` gives the arguments for a size, by name and in order; `grid` is of the config, as
    Triton has it. `expected` is what the `out`put holds at last, in double precision."""

    kernel: Any
    out: str
    configs: tuple[dict[str, int], ...]
    make: Callable[[Any, int, str], dict[str, Any]]
    grid: Callable[[dict[str, Any]], tuple[int, ...]]
    expected: Callable[[dict[str, Any]], Any]
    zeroed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.kernel.__name__)


def _vectors(torch: Any, size: int, device: str) -> dict[str, Any]:
    x, y = (torch.randn(size * size, device=device) for _ in range(2))
    return {"x": x, "y": y, "out": torch.zeros(1, device=device), "n": size * size}


def _matrix(torch: Any, size: int, device: str) -> dict[str, Any]:
    x = torch.randn(size, size, device=device)
    return {"x": x, "out": torch.zeros(size, device=device), "rows": size, "columns": size}


def _indexed(torch: Any, size: int, device: str) -> dict[str, Any]:
    n = size * size
    index = torch.randint(0, 64, (n,), device=device, dtype=torch.int32)
    x = torch.randn(n, device=device)
    return {"x": x, "index": index, "out": torch.zeros(64, device=device), "n": n}


def _product(torch: Any, size: int, device: str) -> dict[str, Any]:
    m = n = 128
    a, b = (torch.randn(*shape, device=device) for shape in ((m, size * 8), (size * 8, n)))
    c = torch.zeros(m, n, device=device)
    return {"a": a, "b": b, "c": c, "m": m, "n": n, "k": size * 8}


def _locked(torch: Any, size: int, device: str) -> dict[str, Any]:
    made = _matrix(torch, min(size, 256), device)
    lock = torch.zeros(1, device=device, dtype=torch.int32)
    return {"x": made["x"], "out": made["out"], "lock": lock} | {
        name: made[name] for name in ("rows", "columns")
    }


def _grouped(torch: Any, size: int, device: str) -> dict[str, Any]:
    return _matrix(torch, size, device) | {"out": torch.zeros(8, device=device)}


def _group_sums(t: dict[str, Any], block: int) -> Any:
    squares = t["x"].double().square().flatten().split(block)
    out = t["out"].double() * 0
    for number, part in enumerate(squares):
        out[number % 8] += part.sum() / t["columns"]
    return out


def _sums_at(t: dict[str, Any]) -> Any:
    return (t["out"].double() * 0).index_add(0, t["index"].long(), t["x"].double())


BLOCKS = ({"BLOCK": 128}, {"BLOCK": 256})

KERNELS = (
    AtomicKernel(
        dot_product,
        "out",
        BLOCKS,
        _vectors,
        lambda t: (triton.cdiv(t["n"], t["BLOCK"]),),
        lambda t: (t["x"].double() * t["y"].double()).sum().view(1),
        ("out",),
    ),
    AtomicKernel(
        column_sums,
        "out",
        ({"BLOCK": 64, "ROWS": 8}, {"BLOCK": 128, "ROWS": 8}),
        _matrix,
        lambda t: (triton.cdiv(t["rows"], t["ROWS"]), triton.cdiv(t["columns"], t["BLOCK"])),
        lambda t: t["x"].double().sum(0),
        ("out",),
    ),
    AtomicKernel(
        scattered_sums,
        "out",
        BLOCKS,
        _indexed,
        lambda t: (triton.cdiv(t["n"], t["BLOCK"]),),
        _sums_at,
        ("out",),
    ),
    AtomicKernel(
        split_product,
        "c",
        ({"BLOCK": 32, "SPLIT": 16}, {"BLOCK": 64, "SPLIT": 32}),
        _product,
        lambda t: (t["m"] // t["BLOCK"], t["n"] // t["BLOCK"], t["SPLIT"]),
        lambda t: t["a"].double() @ t["b"].double(),
        ("c",),
    ),
    AtomicKernel(
        locked_sums,
        "out",
        ({"BLOCK": 256}, {"BLOCK": 512}),
        _locked,
        lambda t: (t["rows"],),
        lambda t: t["x"].double().sum(0),
        ("out", "lock"),
    ),
    AtomicKernel(
        mean_squares,
        "out",
        BLOCKS,
        _grouped,
        lambda t: (triton.cdiv(t["rows"] * t["columns"], t["BLOCK"]),),
        lambda t: _group_sums(t, t["BLOCK"]),
        ("out",),
    ),
)

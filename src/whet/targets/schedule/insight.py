"""What a schedule amounts to, in a sentence read off the program it leaves."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from whet.targets.schedule.bindings import Bindings
from whet.targets.schedule.passes import BUFFERIZING
from whet.targets.schedule.script import operations

_LOOPS = ("scf.for", "scf.forall", "scf.parallel")
_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "i32": 32, "i64": 64}


def insight(mlir: Bindings, payload: Any) -> str:
    """`3 loops in 1 nest, vectors of up to 256 f32; nothing is stored between operations`."""
    copy = _bufferized(mlir, payload)  # which must outlive what is found in it
    found = operations(mlir, copy)
    loops = [one for one in found if one.name in _LOOPS]
    nests = sum(not _inside(one, _LOOPS) for one in loops)
    left = Counter(one.name for one in found if one.name.startswith("linalg.") and one.regions)
    left.pop("linalg.yield", None)
    buffers = [one for one in found if one.name == "memref.alloc"]
    said = [_loops(len(loops), nests), _vectors(mlir, found)]
    if left:
        said.append(f"{sum(left.values())} operations left as plain loops")
    return f"{', '.join(said)}; {_buffers(mlir, buffers)}"


def _bufferized(mlir: Bindings, payload: Any) -> Any:
    """A copy with the buffers that will be made of tensors which the script leaves."""
    copy = mlir.ir.Module.parse(str(payload))
    mlir.pass_manager.parse(f"builtin.module({','.join(BUFFERIZING)})").run(copy.operation)
    return copy


def _loops(loops: int, nests: int) -> str:
    if not loops:
        return "no tiles"
    return f"{loops} loops in {nests} nest{'s' * (nests != 1)}"


def _vectors(mlir: Bindings, found: list[Any]) -> str:
    kinds = {
        value.type
        for one in found
        for value in one.results
        if isinstance(value.type, mlir.ir.VectorType)
    }
    if not kinds:
        return "one number at a time"
    widest = max(kinds, key=lambda kind: math.prod(kind.shape))
    return f"vectors of up to {math.prod(widest.shape)} {widest.element_type}"


def _buffers(mlir: Bindings, buffers: list[Any]) -> str:
    """Those inside a loop are as large as a tile, and stay in a cache."""
    outer = [one for one in buffers if not _inside(one, _LOOPS)]
    if not buffers:
        return "nothing is stored between operations"
    if not outer:
        return "what is stored between operations is as large as a tile"
    size = sum(_bytes(one.results[0].type) for one in outer) / 2**20
    return f"{size:,.2f} MiB of buffers between operations"


def _bytes(kind: Any) -> int:
    elements: int = math.prod(kind.shape)
    return elements * _BITS.get(str(kind.element_type), 32) // 8


def _inside(operation: Any, names: tuple[str, ...]) -> bool:
    above = operation.parent
    while above is not None:
        if above.name in names:
            return True
        above = above.parent
    return False

"""What is read off a program: what its schedule amounts to, and what may be done with its loops."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from whet.core.errors import UsageError
from whet.targets.schedule.bindings import BUFFERIZING, Bindings, bindings
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


_MAP = re.compile(r"affine_map<\(([^)]*)\) -> \((.*)\)>")
_ITERATOR = re.compile(r"iterator_type<(\w+)>")
_SHAPE = re.compile(r"(?:tensor|memref)<((?:\d+x)*)")


@dataclass(frozen=True)
class LoopDependence:
    """A loop of an operation. `carried` says that its iterations add to the same elements, so that
    they may be tiled and reordered, up to rounding, but not run in parallel."""

    axis: int
    extent: int | None
    carried: bool


@dataclass(frozen=True)
class OperationDependence:
    """`label` is what a script matches: the payload's own name for it, else its kind. `producers`
    are the operations whose results it reads, which may be fused into its loops."""

    label: str
    kind: str
    loops: tuple[LoopDependence, ...]
    producers: tuple[str, ...]

    @property
    def parallel(self) -> tuple[int, ...]:
        return tuple(one.axis for one in self.loops if not one.carried)

    @property
    def lines(self) -> list[str]:
        """For people: what is legal, and why something is not."""
        every = ", ".join(str(one.axis) for one in self.loops)
        sizes = " × ".join("?" if one.extent is None else str(one.extent) for one in self.loops)
        said = [f"{self.label}: loops {every} of {sizes}", f"  tile         {every}"]
        if len(self.loops) > 1:
            rounding = (
                " (sums may round differently)" if len(self.parallel) < len(self.loops) else ""
            )
            said.append(f"  interchange  any order{rounding}")
        said.append(f"  parallelize  {', '.join(map(str, self.parallel)) or 'none'}")
        said += [
            f"               not {one.axis}: its iterations add to the same elements"
            for one in self.loops
            if one.carried
        ]
        if self.producers:
            said.append(f"  fuse         {', '.join(self.producers)} into its loops")
        return said


def dependences_of(payload: str) -> tuple[OperationDependence, ...]:
    """Of every linalg operation, in the order of the program."""
    mlir = bindings()
    with mlir.context(), mlir.ir.Location.unknown():
        try:
            module = mlir.ir.Module.parse(payload)
        except mlir.ir.MLIRError as error:
            raise UsageError(f"the payload is not valid: {error}") from None
        named = [one for one in operations(mlir, module) if _is_linalg(one)]
        labels = [_label(one) for one in named]
        kinds = [one.name for one in named]
        # Named operations have their maps only in their general form.
        mlir.pass_manager.parse("builtin.module(linalg-generalize-named-ops)").run(module.operation)
        general = [one for one in operations(mlir, module) if one.name == "linalg.generic"]
        if len(general) != len(named):
            return ()
        results = {
            result: label
            for one, label in zip(general, labels, strict=True)
            for result in map(str, one.results)
        }
        return tuple(
            _dependence(mlir, one, label, kind, results)
            for one, label, kind in zip(general, labels, kinds, strict=True)
        )


# How far apart two numbers next to 1 are.
_ROUNDINGS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}


def rounding_of(payload: str) -> float:
    """How far, relative to the size of the results, sums in another order may be from a reference:
    each operation adds the rounding of its type, times the root of how many terms it sums up."""
    mlir = bindings()
    with mlir.context(), mlir.ir.Location.unknown():
        module = mlir.ir.Module.parse(payload)
        named = [one for one in operations(mlir, module) if _is_linalg(one)]
        kinds = [str(one.operands[-1].type).rstrip(">").split("x")[-1] for one in named]
    apart = dependences_of(payload)
    terms = [
        math.prod(loop.extent or 1 for loop in one.loops if loop.carried) for one in apart
    ] or [1] * len(kinds)
    roundings = [_ROUNDINGS.get(kind.split("<")[-1], 0.0) for kind in kinds]
    return 4 * sum(one * math.sqrt(n) for one, n in zip(roundings, terms, strict=True))


def _is_linalg(operation: Any) -> bool:
    name = operation.name
    return bool(name.startswith("linalg.") and name != "linalg.yield" and len(operation.regions))


def _label(operation: Any) -> str:
    if "whet.name" in operation.attributes:
        return str(operation.attributes["whet.name"].value)
    return str(operation.name)


def _dependence(
    mlir: Bindings, operation: Any, label: str, kind: str, results: dict[str, str]
) -> OperationDependence:
    maps = [_dimensions(str(one)) for one in operation.attributes["indexing_maps"]]
    types = [_ITERATOR.search(str(one)) for one in operation.attributes["iterator_types"]]
    inputs = len(operation.operands) - len(operation.results)
    if not operation.results:  # on buffers the last operand is what is written
        inputs = len(operation.operands) - 1
    written = {axis for one in maps[inputs:] for axis in one if axis is not None}
    loops = []
    for axis, found in enumerate(types):
        declared = found is not None and found.group(1) == "parallel"
        carried = not declared or axis not in written
        loops.append(LoopDependence(axis, _extent(operation, maps, axis), carried))
    read = dict.fromkeys(
        results[str(one.owner.result) if _has_one(one) else ""]
        for one in operation.operands
        if _has_one(one) and str(one.owner.result) in results
    )
    return OperationDependence(label, kind, tuple(loops), tuple(read))


def _has_one(value: Any) -> bool:
    """Whether an operation with one result made it."""
    return hasattr(value.owner, "results") and len(value.owner.results) == 1


def _dimensions(text: str) -> list[int | None]:
    """`affine_map<(d0, d1) -> (d1, 0)>` is `[1, None]`."""
    found = _MAP.search(text)
    if found is None:
        return []
    names = [one.strip() for one in found.group(1).split(",")]
    return [
        names.index(one.strip()) if one.strip() in names else None
        for one in found.group(2).split(",")
    ]


def _extent(operation: Any, maps: list[list[int | None]], axis: int) -> int | None:
    for operand, dimensions in zip(operation.operands, maps, strict=True):
        found = _SHAPE.match(str(operand.type))
        if found is None or axis not in dimensions:
            continue
        sizes = [int(one) for one in found.group(1).split("x") if one]
        at = dimensions.index(axis)
        if at < len(sizes):
            return sizes[at]
    return None

"""Packing: a factor of a product is copied into the order in which its tiles read it.

Before: `C[i, j] += A[i, k] * B[k, j]`. After, with "b": `B[k, j]` is copied to `B'[j / tj, k,
j % tj]` once, and the product is one on `B'`, whose result is unpacked tile by tile; with "both",
`A[i, k]` becomes `A'[i / ti, k, i % ti]` as well. Offered where the tiles divide the loops, and for
a factor that no operation of the same group makes. The filter of a convolution is packed wherever
its channels are not contiguous, in it or in the result.
"""

from __future__ import annotations

from whet.targets.schedule.frontend import KnobHandle
from whet.targets.schedule.sketches.groups import Grouping
from whet.targets.schedule.sketches.products import is_shifted, roles
from whet.targets.schedule.sketches.program import Operation
from whet.targets.schedule.sketches.sizes import offered
from whet.targets.schedule.sketches.writer import (
    GENERIC,
    OP,
    PACK,
    UNPACK,
    Handle,
    Number,
    SketchWriter,
)

_TURNED = ("tensor.pad", "tensor.expand_shape", "linalg.transpose")
_UNTURNED = (
    "tensor.empty",
    "linalg.transpose",
    "tensor.collapse_shape",
    "tensor.extract_slice",
    "linalg.copy",
)
_STEPS, _COLUMNS = (4, 8, 2, 1), (8, 4, 2)
# Copying costs as much as some products for each number of the factor.
_LEAST_WORK = 8


def packings(one: Operation, ways: list[Grouping]) -> list[str]:
    """Which are offered; "none" always is."""
    i, j, _ = roles(one)
    loops = [loop for loop in range(len(one.extents)) if loop not in one.reduced]
    results = [one.outputs[0].plain(at) for at in range(len(one.outputs[0].shape))]
    if j is None or results != loops:
        return ["none"]
    if one.windows:
        filtered = one.inputs[_factor(one, j)]
        aligned = filtered.plain(len(filtered.shape) - 1) == j == one.inner
        return ["none"] if aligned or is_shifted(filtered) else ["b"]
    if i is None:
        return ["none"]
    columns = _factor(one, j)
    if one.extents[i] < _LEAST_WORK or _is_inside(one, columns, ways):
        return ["none"]
    if one.extents[j] < _LEAST_WORK or _is_inside(one, 1 - columns, ways):
        return ["b", "none"]
    return ["b", "both", "none"]


def pack(
    writer: SketchWriter, one: Operation, way: str, ti: int | KnobHandle, tj: int | KnobHandle
) -> Handle:
    """Returns what unpacks the result, which is now the last operation of the product."""
    i, j, _ = roles(one)
    sizes = [
        tj if at == j else ti if at == i and way == "both" else 0 for at in range(len(one.extents))
    ]
    [packed] = writer.step(_pack(sizes), [writer.named(one.name)], [GENERIC])
    copies = []
    for factor, loop in ((_factor(one, j), j), (1 - _factor(one, j), i)):
        if loop == i and way != "both":
            continue
        [copy] = writer.step(f"transform.get_producer_of_operand {{0}}[{factor}]", [packed], [PACK])
        plain = [one.inputs[factor].plain(at) for at in range(len(one.inputs[factor].shape))]
        order = sorted(
            range(len(plain)), key=lambda at: (plain[at] in one.reduced, plain[at] == loop)
        )
        if order != [*range(len(plain))]:
            packed, copy, _ = writer.step(
                "transform.structured.pack_transpose {0} with_compute_op({1}) "
                f"outer_perm = {order}",
                [copy, packed],
                [GENERIC, PACK, OP],
            )
        rest = [plain[at] for at in order]
        copies.append((copy, rest))
    writer.patterns("canonicalization")  # folds the packing of zeros
    writer.name(packed, one.name)
    for copy, rest in copies:
        outer = [1 for loop in rest if loop not in one.reduced]
        some, _ = writer.tiled("structured.tile_using_forall", copy, outer)
        last = rest[-1]
        step = offered(one.extents[last], _STEPS)[0] if last in one.reduced else 0
        sums = [1] * (len(rest) - len(outer))
        if sums:
            some, _ = writer.tiled(
                "structured.tile_using_for", some, [*[0] * len(outer), *sums[:-1], step]
            )
        types = [f'!transform.op<"{one}">' for one in _TURNED]
        writer.step("transform.structured.lower_pack {0}", [writer.cast(some, PACK)], types)
    return writer.step("transform.get_consumers_of_result {0}[0]", [packed], [OP])[0]


def unpack(writer: SketchWriter, one: Operation, ti: Number, tj: Number) -> None:
    """Tile by tile, inside the block."""
    i, j, _ = roles(one)
    [found] = writer.step(
        "transform.get_consumers_of_result {0}[0]", [writer.named(one.name)], [OP]
    )
    sizes = {loop: 1 for loop in range(len(one.extents)) if loop not in one.reduced} | {j: tj}
    if i is not None:
        sizes[i] = ti
    elif one.inner is not None and one.inner != j:  # MLIR takes a single column for a row
        sizes[one.inner] = offered(one.extents[one.inner], _COLUMNS)[0]
    some, _ = writer.tiled("structured.tile_using_for", found, [*sizes.values()])
    lower_unpack(writer, some)


def lower_unpack(writer: SketchWriter, tile: Handle) -> None:
    types = [f'!transform.op<"{one}">' for one in _UNTURNED]
    writer.step("transform.structured.lower_unpack {0}", [writer.cast(tile, UNPACK)], types)


def _pack(sizes: list[int | KnobHandle]) -> str:
    first = ", ".join(str(s if isinstance(s, int) else s.options[0]) for s in sizes)
    listed = ", ".join(str(s) if isinstance(s, int) else f'"{s.name}"' for s in sizes)
    named = any(not isinstance(s, int) for s in sizes)
    more = f" {{{{whet.set = {{{{static_packed_sizes = [{listed}]}}}}}}}}" if named else ""
    return f"transform.structured.pack {{0}} packed_sizes = [{first}]{more}"


def _factor(one: Operation, loop: int | None) -> int:
    """The input that has the loop."""
    return next(at for at, each in enumerate(one.inputs) if loop in each.loops)


def _is_inside(one: Operation, factor: int, ways: list[Grouping]) -> bool:
    maker = one.inputs[factor].maker
    return any(
        {maker, one.number} <= {each.number for each in group.members}
        for way in ways
        for group in way
    )

"""Register tiles of products: contractions and, one window position at a time, convolutions.

A tile of ti by tj results stays in registers while tk products are added to each at a time; k is
walked in blocks of bk around it. j is the loop along which results are contiguous, i a loop of the
factor that j is not in: so each number of one factor meets each of the other.

Before: `C[i, j] += A[i, k] * B[k, j]` on a block. After: loops over k by bk, i by ti and j by tj
(their order is a decision), k by tk, and the product of what is left; a convolution's window and
all other loops are walked one by one, which leaves a contraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from whet.targets.schedule.frontend import KnobHandle
from whet.targets.schedule.sketches.program import Operand, Operation
from whet.targets.schedule.sketches.sizes import offered
from whet.targets.schedule.sketches.writer import OP, Handle, Number, SketchWriter

TI, TJ, TK, BK = (8, 4, 12, 16, 6, 2), (32, 16, 48, 64), (4, 1, 2, 8), (256, 128, 512, 64)
_WHOLE = 4096


def roles(one: Operation) -> tuple[int | None, int | None, int | None]:
    """The loops i, j and k; None where there is none that can be tiled. j of a convolution is a
    loop of the filter alone, its channels, wherever they stand in the result."""
    first, second = one.inputs
    sums = [loop for loop in sorted(one.reduced) if loop not in one.windows]
    k = sums[-1] if sums else None
    j = one.inner
    if one.windows:
        shifted, still = (first, second) if is_shifted(first) else (second, first)
        channels = _own(one, still, shifted)
        j = channels[-1] if channels else j
    if any(j in each.loops and j not in _plain(each) for each in one.inputs):
        return None, None, k
    if (j in first.loops) == (j in second.loops):
        return None, j, k
    rows = _own(one, *((second, first) if j in first.loops else (first, second)))
    return (rows[-1] if rows else None), j, k


def is_shifted(operand: Operand) -> bool:
    return any(one is not None and len(one) > 1 for one in operand.index)


def _own(one: Operation, operand: Operand, other: Operand) -> list[int]:
    """Loops of the result that one factor has, in steps of one, and the other has not."""
    return sorted(_plain(operand) - other.loops - one.reduced)


def _plain(operand: Operand) -> set[int]:
    """Loops that walk a dimension in steps of one, whatever window is added."""
    found = set()
    for one in operand.index:
        found |= {loop for loop, factor in (one or {}).items() if factor == 1}
    return found


@dataclass(frozen=True)
class Tile:
    """The numbers of a product's tiles. `si` and `sj` are what the loops i and j advance by: 1
    where a factor has been packed into such tiles."""

    ti: int | KnobHandle
    tj: int | KnobHandle
    si: Number
    sj: Number


def tile_product(
    writer: SketchWriter, one: Operation, tile: Tile, suffix: str, from_zeros: bool
) -> None:
    i, j, k = roles(one)
    loops = len(one.extents)
    op = writer.named(one.name)
    first = len(one.inputs)
    if from_zeros:
        [zeros] = writer.step(f"transform.get_producer_of_operand {{0}}[{first}]", [op], [OP])
        sizes = [
            _step(loop, i, j, tile)
            for loop in map(one.outputs[0].plain, range(len(one.outputs[0].shape)))
        ]
        writer.tiled("structured.tile_using_for", zeros, sizes)
    blocks = [] if k is None else _blocks(one.extents[k])
    if k is not None and blocks != [one.extents[k]]:
        bk = writer.pick("bk" + suffix, blocks)
        op, _ = writer.tiled(
            "structured.tile_using_for", op, [bk if loop == k else 0 for loop in range(loops)]
        )
    sizes = [0 if loop in one.reduced else _step(loop, i, j, tile) for loop in range(loops)]
    orders = {"rows": list(range(loops))}
    if i is not None and j is not None:
        turned = list(range(loops))
        turned[i], turned[j] = j, i
        orders["columns"] = turned

    def tiled(order: list[int]) -> list[Handle]:
        inner, around = writer.tiled("structured.tile_using_for", op, sizes, order)
        return [inner, around[-1]]

    inner, loop_j = writer.choice(
        "order" + suffix, {name: partial(tiled, order) for name, order in orders.items()}
    )
    tk = 1 if k is None else writer.pick("tk" + suffix, offered(one.extents[k], TK))
    sums = [(tk if loop == k else 1) if loop in one.reduced else 0 for loop in range(loops)]
    if one.windows:
        inner = without_units(writer, loop_j, "reshapes")
        kept = [loop in one.reduced or sizes[loop] != 1 for loop in range(loops)]
        sums = [size for size, keep in zip(sums, kept, strict=True) if keep]
    writer.tiled("structured.tile_using_for", inner, sums)
    if one.windows:
        without_units(writer, loop_j, "slices")


def own_zeros(writer: SketchWriter, one: Operation) -> None:
    """Names what the product starts from after it, so that it stays apart from that of others."""
    step = f"transform.get_producer_of_operand {{0}}[{len(one.inputs)}]"
    [zeros] = writer.step(step, [writer.named(one.name)], [OP])
    writer.name(zeros, f"{one.name}_zeros")


def _step(loop: int | None, i: int | None, j: int | None, tile: Tile) -> Number:
    return tile.si if loop == i else tile.sj if loop == j else 1


def _blocks(extent: int) -> list[int]:
    """With the whole of it, if that is not too long."""
    found = [size for size in offered(extent, BK) if size < extent]
    return [extent, *found] if extent <= _WHOLE else found


def without_units(writer: SketchWriter, loop: Handle, via: str) -> Handle:
    """Drops loops of extent 1 of the one operation inside: a convolution of one window position is
    a contraction. What is written goes through reshapes: MLIR takes the wrong dimension of a slice
    for the one that is missing, when it vectorizes writing it."""
    writer.patterns(f"linalg.fold_unit_extent_dims_via_{via}", "canonicalization", within=loop)
    text = 'transform.structured.match ops{{["linalg.generic"]}} in {0}'
    return writer.step(text, [loop], [OP])[0]

"""Reductions that are no products: sums, maxima, products of two rows.

Along the contiguous dimension, a row is walked `lanes` numbers at a time into as many partial
results, which are put together at its end. Before: `s[i] = max(s[i], x[i, k])`. After: `p[i, l] =
max(p[i, l], x[i, k + l])` for k by lanes, then `s[i] = max over l of p[i, l]`. Across it, as many
columns are reduced beside each other: the loop along which results are contiguous is walked by
lanes, the others one by one.
"""

from __future__ import annotations

from whet.targets.schedule.frontend import KnobHandle
from whet.targets.schedule.sketches.program import Operation
from whet.targets.schedule.sketches.writer import SketchWriter


def along(one: Operation) -> int | None:
    """The reduction that walks an input where it is contiguous."""
    for each in one.inputs if one.splits else ():
        at = len(each.shape) - 1
        if at >= 0 and (loop := each.plain(at)) in one.reduced - one.windows:
            return loop
    return None


def beside(one: Operation) -> int | None:
    """The loop along which both the result and what is read are contiguous."""
    inner = one.inner
    for each in one.inputs:
        if inner in each.loops and each.plain(len(each.shape) - 1) != inner:
            last = each.index[-1] or {}
            if last.get(inner) != 1 or len({*last} - one.windows) > 1:
                return None
    return inner


def tile_rows(writer: SketchWriter, one: Operation, lanes: int | KnobHandle) -> None:
    loop = along(one)
    sizes: list[int | KnobHandle] = [1] * len(one.extents)
    op = writer.named(one.name)
    if loop is None:
        if (inner := beside(one)) is not None:
            sizes[inner] = lanes
        writer.tiled("structured.tile_using_for", op, sizes)
        return
    sizes[loop] = 0
    if any(sizes):
        op, _ = writer.tiled("structured.tile_using_for", op, sizes)
    first = lanes if isinstance(lanes, int) else lanes.options[0]
    listed = ", ".join(str(first) if at == loop else "0" for at in range(len(sizes)))
    named = (
        ", ".join(f'"{lanes.name}"' if at == loop else "0" for at in range(len(sizes)))
        if isinstance(lanes, KnobHandle)
        else ""
    )
    more = f" {{{{whet.set = {{{{tile_sizes = [{named}]}}}}}}}}" if named else ""
    writer.step(
        f"transform.structured.tile_reduction_using_for {{0}} by tile_sizes = [{listed}]{more}",
        [op],
        ["!transform.any_op"] * (2 + 2 * len(one.outputs)),
    )

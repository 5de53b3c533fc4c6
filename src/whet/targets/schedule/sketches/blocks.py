"""Parallel blocks: the loops of a group's sink become one parallel loop over its blocks, in which
the producers of the group are computed for the block alone.

Before: `%p = producer(…)  %s = sink(%p, …)`. After: `scf.forall (%i, %j) in (…) { %pb = producer of
a block; %sb = sink of a block }`. Around a product, the two loops that its tiles have get sizes, bi
and bj; other loops are walked one by one. Without one, the last loop but the contiguous one does.
"""

from __future__ import annotations

from collections.abc import Mapping

from whet.targets.schedule.frontend import KnobHandle
from whet.targets.schedule.sketches.groups import Group
from whet.targets.schedule.sketches.products import roles
from whet.targets.schedule.sketches.program import Operation
from whet.targets.schedule.sketches.sizes import offered
from whet.targets.schedule.sketches.writer import Handle, SketchWriter

# What a block holds of each loop of an operation: so many, or as many as the knob says.
Extents = Mapping[int, int | KnobHandle]

_ROWS, _COLUMNS = (64, 16, 32, 96, 128, 192, 256), (64, 32, 128, 192, 256, 512)
_FEW_ROWS, _SOME_ROWS = (16, 1, 4, 8, 32, 64), (32, 16, 64, 8, 128)
_ALONG = (4096, 1024, 2048, 8192, 512, 256)


def block_sizes(writer: SketchWriter, group: Group, suffix: str) -> dict[int, int | KnobHandle]:
    """Of the sink's loops that are walked in blocks."""
    sizes: dict[int, int | KnobHandle] = dict.fromkeys(group.loops, 1)
    product, walked = group.product, group.walked
    wanted: tuple[int, ...]
    if product is not None:
        i, j, _ = roles(product)
        for loop, name, wanted in ((i, "bi", _ROWS), (j, "bj", _COLUMNS)):
            at = None if loop is None else walked[product.number].get(loop)
            if at is not None and at in sizes:
                sizes[at] = writer.pick(name + suffix, offered(group.sink.extents[at], wanted))
        return sizes
    rows = [loop for loop in group.loops if loop != group.sink.inner]
    if not rows:
        [inner] = group.loops
        return {inner: writer.pick("bi" + suffix, offered(group.sink.extents[inner], _ALONG))}
    wanted = _SOME_ROWS if any(one.heavy for one in group.members) else _FEW_ROWS
    sizes[rows[-1]] = writer.pick("bi" + suffix, offered(group.sink.extents[rows[-1]], wanted))
    if group.sink.inner in sizes:
        del sizes[group.sink.inner]
    return sizes


def tile_blocks(
    writer: SketchWriter, group: Group, sink: Handle, sizes: Mapping[int, int | KnobHandle]
) -> None:
    listed = [sizes.get(loop, 0) for loop in range(len(group.sink.extents))]
    while not listed[-1]:
        del listed[-1]
    writer.tiled("structured.fuse_forall", sink, listed)


def extents_in(group: Group, one: Operation, sizes: Mapping[int, int | KnobHandle]) -> Extents:
    walked = group.walked[one.number]
    return {
        loop: sizes.get(walked.get(loop, -1), extent) for loop, extent in enumerate(one.extents)
    }

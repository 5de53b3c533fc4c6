"""Elementwise operations: the contiguous loop of the result is walked `lanes` numbers at a time,
the others one by one, so that what is left is one vector."""

from __future__ import annotations

from whet.targets.schedule.frontend import KnobHandle
from whet.targets.schedule.sketches.program import Operation
from whet.targets.schedule.sketches.writer import SketchWriter


def tile_elements(writer: SketchWriter, one: Operation, lanes: int | KnobHandle) -> None:
    sizes: list[int | KnobHandle] = [1] * len(one.extents)
    if one.inner is not None:
        sizes[one.inner] = lanes
    if sizes:
        writer.tiled("structured.tile_using_for", writer.named(one.name), sizes)

"""Vectors: what the tiles leave becomes vector operations, whose accumulators stay in registers
while a loop adds to them; then buffers, and vectors as the processor has them."""

from __future__ import annotations

from whet.targets.schedule.sketches.writer import OP, SketchWriter


def vectorize(writer: SketchWriter) -> None:
    writer.clean()
    step = "transform.structured.vectorize_children_and_apply_patterns {0}"
    writer.step(step, [writer.function()], [OP])
    writer.patterns("vector.cast_away_vector_leading_one_dim", "canonicalization")
    step = "transform.structured.hoist_redundant_vector_transfers {0}"
    [function] = writer.step(step, [writer.function()], [OP])
    for name in ("loop-invariant-code-motion", "loop-invariant-subset-hoisting"):
        step = f'transform.apply_registered_pass "{name}" to {{0}}'
        [function] = writer.step(step, [function], [OP])
    writer.clean()
    writer.bufferize()
    writer.lower()

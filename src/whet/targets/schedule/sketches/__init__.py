"""Sketches: a script for any linalg program, from its loops and indexing maps.

What a sketch leaves open is structure (`transform.tune.alternatives`) and numbers
(`transform.tune.knob`), tuned like those of a script that somebody wrote. The rules, one file each,
in the order in which they are applied:

normalize   equal programs look equal
groups      which operations are computed together
packing     factors of products in the order in which they are read
blocks      parallel blocks of each group
products    register tiles of contractions and convolutions
rows        reductions by lanes
elements    elementwise operations by lanes
vectors     vectors, buffers and what the processor has
"""

from __future__ import annotations

from whet.targets.schedule.sketches.derive import sketch

__all__ = ["sketch"]

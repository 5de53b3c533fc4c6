"""Many builds at once: order, limits, stage times, and never the same one twice.

Names are imported when first used: what is stored needs no builds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.core.lazy import lazily

if TYPE_CHECKING:
    from whet.builds.builder import Builder
    from whet.builds.cutting import Cut, cut_for
    from whet.builds.job import BuildResult, Built, Job
    from whet.builds.memory import MEMORY, BuildMemory, outgrown
    from whet.builds.shared import BuildPool, PoolSource, SharedPool

_HOMES = {
    "MEMORY": "memory",
    "BuildMemory": "memory",
    "BuildPool": "shared",
    "BuildResult": "job",
    "Builder": "builder",
    "Built": "job",
    "Cut": "cutting",
    "Job": "job",
    "PoolSource": "shared",
    "SharedPool": "shared",
    "cut_for": "cutting",
    "outgrown": "memory",
}

__all__ = [
    "MEMORY",
    "BuildMemory",
    "BuildPool",
    "BuildResult",
    "Builder",
    "Built",
    "Cut",
    "Job",
    "PoolSource",
    "SharedPool",
    "cut_for",
    "outgrown",
]

__getattr__ = lazily(__name__, _HOMES)

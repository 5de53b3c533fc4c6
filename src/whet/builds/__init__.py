"""Many builds at once: order, limits, stage times, and never the same one twice."""

from whet.builds.builder import Builder
from whet.builds.cutting import Cut, cut_for
from whet.builds.job import BuildResult, Built, Job
from whet.builds.memory import MEMORY, BuildMemory, outgrown
from whet.builds.shared import BuildPool, PoolSource, SharedPool

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

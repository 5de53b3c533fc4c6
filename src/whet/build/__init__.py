"""Many builds at once: order, limits, stage times, and never the same one twice."""

from whet.build.builder import Builder
from whet.build.cutting import Cut, cut_for
from whet.build.job import BuildResult, Built, Job
from whet.build.memory import MEMORY, BuildMemory, outgrown

__all__ = [
    "MEMORY",
    "BuildMemory",
    "BuildResult",
    "Builder",
    "Built",
    "Cut",
    "Job",
    "cut_for",
    "outgrown",
]

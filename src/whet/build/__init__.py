"""Many builds at once: order, limits, stage times."""

from whet.build.builder import Builder
from whet.build.job import BuildResult, Built, Job

__all__ = ["BuildResult", "Builder", "Built", "Job"]

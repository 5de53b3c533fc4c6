"""Many builds at once: order, limits, stage times, and never the same one twice.

Names are imported when first used: what is stored needs no builds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(f"whet.builds.{_HOMES[name]}"), name)
    globals()[name] = value
    return value

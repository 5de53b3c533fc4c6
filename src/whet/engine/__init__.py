"""Joins search, build, measure and store into one loop. Knows no target by name."""

from whet.engine.plan import Plan
from whet.engine.settings import ResolvedSettings, Settings, resolve_settings
from whet.engine.target import BenchLimits, Target
from whet.engine.tune import Interrupted, tune

__all__ = [
    "BenchLimits",
    "Interrupted",
    "Plan",
    "ResolvedSettings",
    "Settings",
    "Target",
    "resolve_settings",
    "tune",
]

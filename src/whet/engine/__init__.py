"""Joins search, build, measure and store into one loop. Knows no target by name.

Names are imported when first used: reading a setting must not load the measuring room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.core.lazy import lazily

if TYPE_CHECKING:
    from whet.engine.guard import HostLostError, Interrupted, StoreLostError
    from whet.engine.plan import Plan
    from whet.engine.settings import ResolvedSettings, Settings, resolve_settings
    from whet.engine.target import BenchLimits, Target
    from whet.engine.tuning import tune

_HOMES = {
    "BenchLimits": "target",
    "HostLostError": "guard",
    "Interrupted": "guard",
    "Plan": "plan",
    "ResolvedSettings": "settings",
    "Settings": "settings",
    "StoreLostError": "guard",
    "Target": "target",
    "resolve_settings": "settings",
    "tune": "tuning",
}

__all__ = [
    "BenchLimits",
    "HostLostError",
    "Interrupted",
    "Plan",
    "ResolvedSettings",
    "Settings",
    "StoreLostError",
    "Target",
    "resolve_settings",
    "tune",
]

__getattr__ = lazily(__name__, _HOMES)

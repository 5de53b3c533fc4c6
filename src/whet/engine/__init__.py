"""Joins search, build, measure and store into one loop. Knows no target by name.

Names are imported when first used: reading a setting must not load the measuring room.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.engine.plan import Plan
    from whet.engine.recovery.interrupt import HostLostError, Interrupted, StoreLostError
    from whet.engine.settings import ResolvedSettings, Settings, resolve_settings
    from whet.engine.target import BenchLimits, Target
    from whet.engine.tuning import tune

_HOMES = {
    "BenchLimits": "target",
    "HostLostError": "recovery.interrupt",
    "Interrupted": "recovery.interrupt",
    "Plan": "plan",
    "ResolvedSettings": "settings",
    "Settings": "settings",
    "StoreLostError": "recovery.interrupt",
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'whet.engine' has no attribute '{name}'")
    value = getattr(import_module(f"whet.engine.{_HOMES[name]}"), name)
    globals()[name] = value
    return value

"""Timers by name: `cpu`, `once`, and those of installed packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from whet.core.errors import UsageError, did_you_mean
from whet.core.plugins import find_plugin, plugin_names
from whet.measure.cpu import CpuTimer, OnceTimer
from whet.measure.timer import Timer

TIMERS: dict[str, Callable[[], Timer]] = {CpuTimer.name: CpuTimer, OnceTimer.name: OnceTimer}

# Without arguments: a class, or a function that makes one in the process that measures.
MakeTimer: TypeAlias = Callable[[], Timer]

_NEEDED = ("name", "warm", "measure")


def timer_maker(timer: str | MakeTimer) -> MakeTimer:
    """What makes the timer of that name; anything else must be able to make one itself."""
    if not isinstance(timer, str):
        if not callable(timer) or not _complete(timer()):
            raise UsageError(
                f"timer= is {timer!r}; give a class of timers or one of {', '.join(_names())}"
            )
        return timer
    if timer in TIMERS:
        return TIMERS[timer]
    plugin = find_plugin("timer", timer)
    if plugin is None:
        raise UsageError(f"unknown timer '{timer}'{did_you_mean(timer, _names())}")
    made = plugin.make()
    if not _complete(made):
        kind = type(made).__name__
        raise plugin.unfit(f"it made {kind!r}, which has no name, warm and measure")
    maker: MakeTimer = plugin.part
    return maker


def _complete(timer: Any) -> bool:
    return all(hasattr(timer, one) for one in _NEEDED)


def _names() -> tuple[str, ...]:
    return (*TIMERS, *plugin_names("timer"))

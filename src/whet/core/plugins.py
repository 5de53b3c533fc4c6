"""Parts that other packages bring, found by name through entry points.

They are looked for only where a name is none of ours: reading the entry points of everything that
is installed takes longer than a look-up in the store.

Why it is so: docs/decisions/plugins.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from whet.core.errors import UsageError, WhetError

GROUPS = {
    "strategy": "whet.strategies",
    "store": "whet.stores",
    "timer": "whet.timers",
    "target": "whet.targets",
    "format": "whet.formats",
}


class PluginError(UsageError):
    """A part of another package that cannot be used; the message names the package."""


@dataclass(frozen=True)
class Plugin:
    """A part that another package offers; `part` is what its entry point leads to."""

    kind: str
    name: str
    package: str
    part: Any = field(compare=False)

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}' of package {self.package}"

    def make(self, *args: Any, **keywords: Any) -> Any:
        """What the part gives when it is called."""
        if not callable(self.part):
            raise self.unfit(f"{type(self.part).__name__} is not callable")
        return self.call(self.part, *args, **keywords)

    def call(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Calls a function of the part's. Errors that are meant for people pass; any other is a
        `PluginError`."""
        try:
            return function(*args, **keywords)
        except WhetError:
            raise
        except (Exception, SystemExit) as error:
            raise self.unfit(_first_line(error)) from error

    def unfit(self, why: str) -> PluginError:
        return PluginError(f"cannot use the {self}: {why}")


def find_plugin(kind: str, name: str) -> Plugin | None:
    """The part of this kind and name, None where no installed package has one.

    Raises `PluginError` where it cannot be imported, and where two packages have one.
    """
    return _found(kind, name, tuple(sys.path))


def plugin_names(kind: str) -> tuple[str, ...]:
    return tuple(sorted({point.name for point in _entry_points(kind)}))


@cache
def _found(kind: str, name: str, path: tuple[str, ...]) -> Plugin | None:
    """`path` is what entry points are looked for along, so that another one is looked at anew."""
    points = [point for point in _entry_points(kind) if point.name == name]
    packages = sorted({_package(point) for point in points})
    if len(packages) > 1:
        both = " and ".join(packages)
        raise PluginError(f"{both} both have a {kind} '{name}'; uninstall one of them")
    if not points:
        return None
    try:
        return Plugin(kind, name, packages[0], points[0].load())
    except (Exception, SystemExit) as error:
        unloaded = Plugin(kind, name, packages[0], None)
        raise PluginError(f"cannot import the {unloaded}: {_first_line(error)}") from error


def _entry_points(kind: str) -> list[Any]:
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUPS[kind]))


def _package(point: Any) -> str:
    return point.value.partition(":")[0] if point.dist is None else str(point.dist.name)


def _first_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

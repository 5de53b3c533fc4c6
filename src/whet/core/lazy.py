"""What is worked out when it is first used: names of a package, properties of an instance."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property", "lazily"]


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package; `homes` has the module inside it of each name."""

    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return found


# In 3.11 `functools.cached_property` holds a lock, one for all instances, while it works out a
# value; a child that is forked meanwhile would wait for that lock for ever.
if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property  # noqa: TID251
else:

    class cached_property(functools.cached_property):  # noqa: N801, TID251 - its name there
        def __init__(self, func: Callable[[Any], Any]) -> None:
            super().__init__(func)
            self.lock = nullcontext()

"""`cached_property` as Python has it from 3.12 on. In 3.11 it holds a lock, one for all instances,
while it works out a value; a child that is forked meanwhile would wait for that lock for ever."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property  # noqa: TID251
else:

    class cached_property(functools.cached_property):  # noqa: N801, TID251 - its name there
        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            values = instance.__dict__
            try:
                return values[self.attrname]
            except KeyError:
                return values.setdefault(self.attrname, self.func(instance))


__all__ = ["cached_property"]

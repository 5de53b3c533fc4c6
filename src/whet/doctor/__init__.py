"""Why `torch.compile` is not faster, and which of its modes to use.

`whet.doctor(model, inputs)` calls the room itself: package and function share a name, and which of
the two `whet.doctor` is must not depend on what was imported first.

Why it is so: docs/decisions/doctor.md.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from whet.doctor.checkup import doctor

        return doctor(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom

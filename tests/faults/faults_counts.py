"""How often a fault is tried: a little in CI, in full by `make faults`."""

from __future__ import annotations

import os


def count(ci: int, full: int) -> int:
    # conftest removes WHET_* variables, so that this one has another prefix.
    return full if os.environ.get("FAULTS") == "full" else ci

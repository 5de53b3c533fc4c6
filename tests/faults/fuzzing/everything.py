"""All targets, and how many of so many inputs each of them gets."""

from __future__ import annotations

import math

from fuzzing import commands, kept, stores, tables, texts
from fuzzing.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (tables, texts, stores, kept, commands)
    for target in module.TARGETS
}


def shares(inputs: int, names: list[str]) -> dict[str, int]:
    """By what each is good for in a second; together no fewer than `inputs`."""
    whole = sum(TARGETS[name].per_million for name in names)
    return {name: math.ceil(inputs * TARGETS[name].per_million / whole) for name in names}

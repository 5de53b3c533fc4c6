"""When a build has taken so long that its config is given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FLOOR_S = 1.5
FACTOR = 3.0

# How many builds must have led to a measured config before any is cut.
ENOUGH = 3


@dataclass(frozen=True)
class Cut:
    """A limit for builds, and why it is that: the end of the sentence "cut after 2.9 s: …"."""

    limit_s: float
    why: str

    @property
    def text(self) -> str:
        return f"stopped after {self.limit_s:.2g} s: {self.why}"


def cut_for(standing_s: Sequence[float], measured: int, ceiling_s: float | None) -> Cut | None:
    """A few times what the slowest config that may still win took to build.

    `standing_s` are the build times of those, `measured` is how many that were built have been
    measured; `ceiling_s` is the limit that was set. None while too little is known, and where the
    limit that was set is no higher. Builds compete for the cores, so all of these times are longer
    than they would be alone, those of the builds to be cut as well.
    """
    if measured < ENOUGH or not standing_s:
        return None
    slowest = max(standing_s)
    limit = max(FLOOR_S, FACTOR * slowest)
    if ceiling_s is not None and limit >= ceiling_s:
        return None
    if limit > FACTOR * slowest:
        why = f"the slowest config still in the race took {slowest:.2g} s to build"
    else:
        why = (
            f"{FACTOR:g} times what the slowest config still in the race took to build "
            f"({slowest:.2g} s)"
        )
    return Cut(limit, why)

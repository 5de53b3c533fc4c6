"""`Plan`: how the engine spends its samples."""

from __future__ import annotations

from dataclasses import dataclass, field

from whet.measure.racing.duel import DuelPolicy
from whet.measure.racing.race import RacePolicy


@dataclass(frozen=True)
class Plan:
    """The default races: a first look at everything, more for what may win, a duel at the end.

    A fixed plan gives every config the same number of samples and takes the lowest median.
    """

    race: RacePolicy = field(default_factory=RacePolicy)
    duel: DuelPolicy | None = field(default_factory=DuelPolicy)
    fixed_samples: int | None = None

    @classmethod
    def fixed(cls, samples: int) -> Plan:
        return cls(duel=None, fixed_samples=samples)

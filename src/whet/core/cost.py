"""`Cost`: where the seconds went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from whet.core.decoding import numbers
from whet.core.frozen import FrozenMap

# `waiting` is for builds, `queue` for another process that tunes the same.
WallPhase = Literal["measure", "load", "first_call", "check", "search", "waiting", "queue", "idle"]

# Highest first: when several things go on at once, the instant belongs to the first of these.
WALL_PHASES: tuple[WallPhase, ...] = (
    "measure",
    "load",
    "first_call",
    "check",
    "search",
    "waiting",
    "queue",
    "idle",
)


@dataclass(frozen=True)
class Cost:
    """Two ledgers of seconds.

    `work` adds up what every process spent, by phase (`build`, `load`, `first_call`, `warmup`,
    `measure`, `check`, `search`) and, after a dot, by stage of it (`build.compile`); a stage is
    part of its phase. `wall` gives each instant of the run to one phase, so it sums to the run's
    length.
    """

    work: FrozenMap[float] = field(default_factory=FrozenMap)
    wall: FrozenMap[float] = field(default_factory=FrozenMap)

    @classmethod
    def of(cls, **work: float) -> Cost:
        return cls(FrozenMap(work))

    def __add__(self, other: Cost) -> Cost:
        return Cost(_added(self.work, other.work), _added(self.wall, other.wall))

    @property
    def work_s(self) -> float:
        return sum(seconds for phase, seconds in self.work.items() if "." not in phase)

    @property
    def wall_s(self) -> float:
        return sum(self.wall.values())

    def to_json(self) -> dict[str, Any]:
        return {"v": 1, "work_s": _rounded(self.work), "wall_s": _rounded(self.wall)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cost:
        return cls(FrozenMap(numbers(data, "work_s")), FrozenMap(numbers(data, "wall_s")))


def _added(one: Mapping[str, float], two: Mapping[str, float]) -> FrozenMap[float]:
    sums = dict(one)
    for phase, seconds in two.items():
        sums[phase] = sums.get(phase, 0.0) + seconds
    return FrozenMap(sums)


def _rounded(ledger: Mapping[str, float]) -> dict[str, float]:
    return {phase: round(seconds, 9) for phase, seconds in ledger.items()}

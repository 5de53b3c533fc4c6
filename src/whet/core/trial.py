"""`Trial`: one config's outcome, failures included; `Cost`: where the seconds went."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from whet.core.config import Config, Value, frozen_values
from whet.core.decoding import number, numbers, text
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.status import Limit, Status
from whet.core.timing import Timing

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


def new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Trial:
    """One attempt to build and measure a config.

    `created` is in seconds since the epoch. `facts` describe the binary: registers, size, hash…
    """

    workload_id: str
    config: Config
    status: Status
    timing: Timing | None = None
    cost: Cost = field(default_factory=Cost)
    facts: FrozenMap[Value] = field(default_factory=FrozenMap)
    error: str = ""
    limit: Limit | None = None
    run_id: str = ""
    created: float = 0.0
    id: str = field(default_factory=new_id)

    def __repr__(self) -> str:
        time = "" if self.median_ns is None else f", {self.median_ns:,.1f} ns"
        error = f", {self.error.strip().partition(chr(10))[0][:80]}" if self.error else ""
        return f"Trial([{self.config}] {self.status}{time}{error})"

    @cached_property
    def median_ns(self) -> float | None:
        """None where nothing was timed."""
        timing = self.timing
        if timing is None or not (timing.samples or timing.foreign):
            return None
        return timing.median_ns

    def superseded_by(self, **changes: Any) -> Trial:
        """Returns a later outcome of the same config as a new trial; trials are never edited."""
        return replace(self, id=new_id(), **changes)

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "id": self.id,
            "workload": self.workload_id,
            "run": self.run_id,
            "config": dict(self.config),
            "config_id": self.config.id,
            "status": str(self.status),
            "median_ns": self.median_ns,
            "timing": None if self.timing is None else self.timing.to_json(),
            "cost": self.cost.to_json(),
            "facts": dict(self.facts),
            "error": self.error,
            "limit": None if self.limit is None else self.limit.to_json(),
            "created": self.created,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trial:
        timing, limit = data["timing"], data["limit"]
        return cls(
            workload_id=text(data, "workload"),
            config=Config(data["config"]),
            status=Status(data["status"]),
            timing=None if timing is None else Timing.from_json(timing),
            cost=Cost.from_json(data["cost"]),
            facts=frozen_values(data["facts"]),
            error=text(data, "error"),
            limit=None if limit is None else Limit.from_json(limit),
            run_id=text(data, "run"),
            created=number(data, "created"),
            id=text(data, "id"),
        )

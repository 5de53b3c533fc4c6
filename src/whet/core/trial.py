"""`Trial`: one config's outcome, failures included."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from whet.core.cached import cached_property
from whet.core.config import Config, Value, frozen_values
from whet.core.cost import Cost
from whet.core.decoding import number, text
from whet.core.frozen import FrozenMap
from whet.core.limit import Limit
from whet.core.status import Status
from whet.core.timing import Timing


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

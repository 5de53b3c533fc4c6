"""`Device`: what a kernel runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What the device has. None where it is unknown or has no such thing."""

    shared_memory_bytes: int | None = None
    registers: int | None = None
    threads: int | None = None
    l2_bytes: int | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Device:
    name: str
    vendor: str
    architecture: str
    driver: str = ""
    limits: Limits = field(default_factory=Limits)

    @property
    def is_cpu(self) -> bool:
        return self.vendor == "cpu"

    def to_json(self) -> dict[str, Any]:
        return {"v": 1, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Device:
        return cls(
            name=data["name"],
            vendor=data["vendor"],
            architecture=data["architecture"],
            driver=data["driver"],
            limits=Limits(**data["limits"]),
        )

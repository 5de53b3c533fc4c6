"""`Device`: what a kernel runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from whet.core.decoding import text


@dataclass(frozen=True)
class Limits:
    """What the device has. None where it is unknown or has no such thing."""

    shared_memory_bytes: int | None = None
    registers: int | None = None
    threads: int | None = None
    l2_bytes: int | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Limits:
        if not all(value is None or type(value) is int for value in data.values()):
            raise ValueError("a limit is not a whole number")
        return cls(**data)


@dataclass(frozen=True)
class Device:
    name: str
    vendor: str
    architecture: str
    driver: str = ""
    limits: Limits = field(default_factory=Limits)

    def to_json(self) -> dict[str, Any]:
        return {"v": 1, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Device:
        return cls(
            name=text(data, "name"),
            vendor=text(data, "vendor"),
            architecture=text(data, "architecture"),
            driver=text(data, "driver"),
            limits=Limits.from_json(data["limits"]),
        )

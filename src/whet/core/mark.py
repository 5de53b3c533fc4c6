"""`Mark`: written before configs first run in the tuner's own process, and gone once they have.

One that is still there when its process is not says who may have ended it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.core.config import Config
from whet.core.decoding import number, text, whole


@dataclass(frozen=True)
class ProcessName:
    """One process among all there ever were: a pid is used again, with its start time it is not.

    `boot` names the host's current uptime and `started` counts the kernel's ticks since then;
    empty and 0 where the system does not tell."""

    host: str
    boot: str
    pid: int
    started: int

    def to_json(self) -> dict[str, Any]:
        return {"host": self.host, "boot": self.boot, "pid": self.pid, "started": self.started}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProcessName:
        return cls(
            text(data, "host"), text(data, "boot"), whole(data, "pid"), whole(data, "started")
        )


@dataclass(frozen=True)
class Mark:
    """`spoiled`: the process lives, but one of the configs has taken its device from it."""

    workload_id: str
    run_id: str
    configs: tuple[Config, ...]
    process: ProcessName
    at: float
    spoiled: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "workload": self.workload_id,
            "run": self.run_id,
            "configs": [dict(config) for config in self.configs],
            "process": self.process.to_json(),
            "at": self.at,
            "spoiled": self.spoiled,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mark:
        return cls(
            workload_id=text(data, "workload"),
            run_id=text(data, "run"),
            configs=tuple(Config(config) for config in data["configs"]),
            process=ProcessName.from_json(data["process"]),
            at=number(data, "at"),
            spoiled=data["spoiled"] is True,
        )

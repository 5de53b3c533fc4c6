"""Which process does what: it tunes a workload (`Holder`), or runs configs for the first time
(`Mark`); which of them still live, and what memory the host has."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
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
    """Written before configs first run in the tuner's own process, and gone once they have: one
    that is still there when its process is not says who may have ended it. `spoiled`: the process
    lives, but one of the configs has taken its device from it."""

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


@dataclass(frozen=True)
class Holder:
    """Who tunes a workload now, so that others wait.

    `own` is where it is the process that waits, in another thread; `host` is empty where it is
    the same. What the lock's file does not tell, or tells of a process that has ended, is None."""

    pid: int | None = None
    since: float | None = None
    host: str = ""
    own: bool = False

    @property
    def name(self) -> str:
        """`pid 4711`, `pid 4711 on node7`."""
        if self.own:
            return "another thread of this process"
        if self.pid is None:
            return "another process"
        return f"pid {self.pid}" + (f" on {self.host}" if self.host else "")

    def __str__(self) -> str:
        """`another process is already tuning this (pid 4711, since 14:02:11)`."""
        who = "another thread of this process" if self.own else "another process"
        pid = "" if self.pid is None or self.own else self.name
        known = ", ".join(part for part in (pid, self.since_text) if part)
        return f"{who} is already tuning this" + (f" ({known})" if known else "")

    @property
    def since_text(self) -> str:
        """`since 14:02:11`, with the day where that is another one; empty where it is not known."""
        if self.since is None:
            return ""
        then, now = time.localtime(self.since), time.localtime()
        form = "%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M"
        return time.strftime(f"since {form}", then)


def user_and_host() -> tuple[str, str]:
    """Of this process, which writes results."""
    import getpass  # few processes ever write

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return user, platform.node()


def memory_info(field: str) -> int | None:
    """Bytes of one line of /proc/meminfo (`MemTotal`, `MemAvailable`), where there is one."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    except (OSError, ValueError):
        pass
    return None


def this_process() -> ProcessName:
    pid = os.getpid()
    return ProcessName(platform.node(), _boot(), pid, _started(pid) or 0)


def lives(process: ProcessName) -> bool | None:
    """None where that cannot be told from here: another host's."""
    if process.host != platform.node():
        return None
    return process.boot == _boot() and _started(process.pid) == process.started


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """Ticks from boot to the process's start; None where it has ended, waited for or not."""
    try:
        # The name may hold anything, brackets included; what follows its last bracket is plain.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None

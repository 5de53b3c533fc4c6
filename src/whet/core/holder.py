"""`Holder`: who tunes a workload now, so that others wait."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Holder:
    """`own` is where it is the process that waits, in another thread; `host` is empty where it is
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

"""What the host has to give to a tuning, and which of its processes still live."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.core.process import ProcessName


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
    from whet.core.process import ProcessName

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

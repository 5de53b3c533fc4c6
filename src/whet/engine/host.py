"""What the host has to give to a tuning."""

from __future__ import annotations

from pathlib import Path


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

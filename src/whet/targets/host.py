"""The machine at hand, as a `Device`."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

from whet.core.workload import Device, Limits
from whet.engine.host import memory_info


@cache
def host_device() -> Device:
    return Device(
        name=_cpu_name(),
        vendor="cpu",
        architecture=platform.machine(),
        limits=Limits(
            multiprocessors=len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count(),
            memory_bytes=memory_info("MemTotal"),
        ),
    )


def _cpu_name() -> str:
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:  # ARM names its cores by number only
        return f"ARM implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
    return platform.processor() or platform.machine()

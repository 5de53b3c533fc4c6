"""What has to be the same on two machines before their results are compared."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import Any

from whet._version import __version__
from whet.core.frozen import FrozenMap
from whet.measure.gpu.nvml import installed_gpu

_PACKAGES = ("triton", "torch", "numpy")

# A fake device is named by its seat; nothing else reads this.
DEVICE_VARIABLE = "WHET_DEVICE"


@dataclass(frozen=True)
class SeatFacts:
    """`toolchain` has versions by name. `device` is empty where there is no GPU."""

    host: str
    device: str = ""
    driver: str = ""
    toolchain: FrozenMap[str] = field(default_factory=FrozenMap)

    def differences(
        self, expected: SeatFacts, *, device: bool = True, tools: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """`("triton 3.6.0, not 3.9.0",)`: in what this is not as expected. Only a seat has a device
        that counts; a node that builds needs none, and no more than the `tools` of its builds."""
        found = [
            f"{name} {self.toolchain.get(name, 'missing')}, not {wanted}"
            for name, wanted in expected.toolchain.items()
            if self.toolchain.get(name) != wanted and (tools is None or name in tools)
        ]
        if device:
            pairs = (
                ("device", self.device, expected.device),
                ("driver", self.driver, expected.driver),
            )
            found += [
                f"{what} {is_ or 'none'}, not {wanted or 'none'}"
                for what, is_, wanted in pairs
                if is_ != wanted
            ]
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "device": self.device,
            "driver": self.driver,
            "toolchain": dict(self.toolchain),
        }


def facts_here(extra: Mapping[str, str] | None = None) -> SeatFacts:
    """Of this process; `extra` are versions that somebody else knows of."""
    device, driver = installed_gpu(os.environ.get("CUDA_VISIBLE_DEVICES"))
    return SeatFacts(
        socket.gethostname(), device, driver, FrozenMap({**_versions(), **(extra or {})})
    )


@cache
def _versions() -> Mapping[str, str]:
    found = {
        "whet": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    compiler = _compiler()
    return {**found, "cc": compiler} if compiler else found


def _compiler() -> str:
    try:
        told = subprocess.run(["cc", "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.partition("\n")[0].strip()

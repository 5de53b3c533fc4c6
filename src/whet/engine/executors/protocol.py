"""The contract of an executor: seats where one thing at a time is measured, and rooms to build in.

What crosses is what crosses to any worker: build tasks, artifacts as values, visits and answers.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, Self

from whet._version import __version__
from whet.core.errors import HostFailure
from whet.core.frozen import FrozenMap
from whet.measure.gpu.nvml import installed_gpu

if TYPE_CHECKING:
    from whet.builds.shared import PoolSource
    from whet.workers.session import RemoteObject


class SeatLostError(HostFailure):
    """The machine or process behind a seat is gone: nothing that ran there is to blame, and what
    was asked of it can be asked of another seat."""

    def __init__(self, seat: str, reason: str) -> None:
        super().__init__(seat, reason)
        self.seat = seat
        self.reason = reason

    def __str__(self) -> str:
        return f"device {self.seat} is lost: {self.reason}"


class Seat(Protocol):
    """One device. Only one thing at a time is measured there, whoever asks.

    `name` is unique among the seats of its executor, and the same every time a seat for this device
    is opened.
    """

    @property
    def name(self) -> str: ...

    @property
    def remote(self) -> bool:
        """True where files and memory of this machine cannot be reached."""

    def facts(self) -> SeatFacts:
        """What its process finds: device, driver, versions. Raises `SeatLostError`."""

    def session(
        self,
        factory: Callable[[], Any],
        mode: str = "spawn",
        *,
        preload: Sequence[str] = (),
    ) -> RemoteObject:
        """Has `factory()` made in a process for this device; its methods are called like those of a
        `Session`. Calls end in `SeatLostError` where the device is gone."""


class DeviceExecutor(Protocol):
    """Seats and builders, as long as it is open. To be closed, or used with `with`.

    `seats` may answer differently each time: devices leave and join. What is asked for in the
    order of that list keeps it.
    """

    name: str

    def seats(self) -> Sequence[Seat]: ...

    def builders(self, mode: str, jobs: int | None = None) -> PoolSource | None:
        """Where builds of this mode run; None: in a pool of this machine, as ever. The mode
        `divided` is `fork` whose tasks have a first part; `jobs` of these may run here at once."""
        return None

    def build_slots(self, mode: str) -> int | None:
        """How many builds run at once there; None where there are no builders."""
        return None

    def refused(self) -> Sequence[str]:
        """Devices and nodes that are not used, each with the reason, as sentences."""
        return ()

    def close(self) -> None:
        """Ends everything it started, also on other machines. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


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

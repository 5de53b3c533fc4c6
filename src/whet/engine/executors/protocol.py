"""The contract of an executor: seats where one thing at a time is measured, and rooms to build in.

What crosses is what crosses to any worker: build tasks, artifacts as values, visits and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from whet.core.errors import HostFailure

if TYPE_CHECKING:
    from whet.builds.shared import PoolSource
    from whet.engine.executors.facts import SeatFacts
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

    @property
    def name(self) -> str: ...

    def seats(self) -> Sequence[Seat]: ...

    def builders(self, mode: str, jobs: int | None = None) -> PoolSource | None:
        """Where builds of this mode run; None: in a pool of this machine, as ever. The mode
        `divided` is `fork` whose tasks have a first part; `jobs` of these may run here at once."""

    def build_slots(self, mode: str) -> int | None:
        """How many builds run at once there; None where there are no builders."""

    def refused(self) -> Sequence[str]:
        """Devices and nodes that are not used, each with the reason, as sentences."""

    def close(self) -> None:
        """Ends everything it started, also on other machines. May be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

"""Leases: one process of a fleet tunes a workload, and the others see who."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class LeaseHeld:
    """Somebody else has the lease: `process` is what they said of themselves, `since` is by the
    server's clock."""

    process: str
    since: float


class Lease(Protocol):
    """Renewed until it is released, or lost with the connection or the process."""

    @property
    def lost(self) -> bool: ...

    def release(self) -> None: ...


@runtime_checkable
class LeasingStore(Protocol):
    """A store of a fleet."""

    def lease(self, workload_id: str, process: str) -> Lease | LeaseHeld | None:
        """Without waiting; None where the server is away, so that nobody can be asked. After it has
        been had, reading the workload shows what others have found until then."""
        ...

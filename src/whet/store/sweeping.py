"""What `gc` was asked to remove, checked."""

from __future__ import annotations

import time
from dataclasses import dataclass

from whet.core.errors import UsageError


@dataclass(frozen=True)
class Sweep:
    """`workloads`: remove those of `kernel` that were last active before `cutoff`, where None
    sets no bound. `superseded`: remove such trials of `kernel`."""

    workloads: bool
    superseded: bool
    kernel: str | None
    cutoff: float | None

    @classmethod
    def of(cls, older_than_s: float | None, superseded: bool, kernel: str | None) -> Sweep:
        if older_than_s is not None and not older_than_s >= 0:
            raise UsageError(f"an age of {older_than_s} s cannot be; give zero or more seconds")
        return cls(
            workloads=older_than_s is not None or (kernel is not None and not superseded),
            superseded=superseded,
            kernel=kernel,
            cutoff=None if older_than_s is None else time.time() - older_than_s,
        )

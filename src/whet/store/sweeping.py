"""What `gc` was asked to remove, checked; what that comes to in a given store; and what went."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap


@dataclass(frozen=True)
class GcReport:
    """What went, or would go in a dry run, where the bytes are an estimate.

    `bytes_left` is what the store then holds; `kernels` counts the workloads by kernel."""

    trials: int = 0
    runs: int = 0
    workloads: int = 0
    bytes_freed: int = 0
    bytes_left: int = 0
    kernels: FrozenMap[int] = field(default_factory=FrozenMap)
    dry_run: bool = False


@dataclass(frozen=True)
class Weighed:
    """One workload on the scales. `superseded_bytes` are part of `bytes`."""

    id: str
    kernel: str
    active: float
    bytes: float
    superseded_bytes: float


@dataclass(frozen=True)
class Going:
    """`workloads` go whole, and of `confined` those trials that are `superseded`."""

    workloads: tuple[Weighed, ...]
    confined: tuple[Weighed, ...]
    superseded: bool


@dataclass(frozen=True)
class Sweep:
    """`workloads`: remove those that were last active before `cutoff`, where None sets no bound.
    `superseded`: remove such trials. `kernel` and `ids` confine either, and what `max_bytes`
    may cost."""

    workloads: bool
    superseded: bool
    kernel: str | None
    ids: frozenset[str] | None
    cutoff: float | None
    max_bytes: int | None

    @classmethod
    def of(
        cls,
        older_than_s: float | None,
        superseded: bool,
        kernel: str | None,
        ids: Collection[str] | None,
        max_bytes: int | None,
    ) -> Sweep:
        if older_than_s is not None and not older_than_s >= 0:
            raise UsageError(f"an age of {older_than_s} s is not valid; give 0 seconds or more")
        if max_bytes is not None and max_bytes < 0:
            raise UsageError(f"a size of {max_bytes} bytes is not valid; give 0 or more")
        confined = kernel is not None or ids is not None
        return cls(
            workloads=older_than_s is not None
            or (confined and not superseded and max_bytes is None),
            superseded=superseded,
            kernel=kernel,
            ids=None if ids is None else frozenset(ids),
            cutoff=None if older_than_s is None else time.time() - older_than_s,
            max_bytes=max_bytes,
        )

    def choose(self, known: Sequence[Weighed], size: float) -> Going:
        """What goes of a store that holds `known` in `size` bytes."""
        confined = tuple(one for one in known if self._concerns(one))
        whole = [one for one in confined if self.workloads and self._old(one)]
        if self.max_bytes is None:
            return Going(tuple(whole), confined, self.superseded)
        gone = {one.id for one in whole}
        kept = sorted((one for one in confined if one.id not in gone), key=lambda one: one.active)
        left = size - sum(one.bytes for one in whole)
        superseded = self.superseded or left > self.max_bytes
        if superseded:
            left -= sum(one.superseded_bytes for one in kept)
        for one in kept:
            if left <= self.max_bytes:
                break
            whole.append(one)
            left -= one.bytes - one.superseded_bytes
        return Going(tuple(whole), confined, superseded)

    def _concerns(self, one: Weighed) -> bool:
        return self.kernel in (None, one.kernel) and (self.ids is None or one.id in self.ids)

    def _old(self, one: Weighed) -> bool:
        return self.cutoff is None or one.active < self.cutoff

"""What a store says of work on it as a whole. Look-ups do without these."""

from __future__ import annotations

from dataclasses import dataclass, field

from whet.core.frozen import FrozenMap
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.protocol import Pick


@dataclass(frozen=True)
class MergedPick:
    """What a merge has made of a workload's pick; `before` is None where there was none."""

    workload: Workload
    before: Trial | None
    now: Pick

    @property
    def changed(self) -> bool:
        return self.before is not None and self.before.config != self.now.trial.config


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
class MergeReport:
    """What was not there before. `picks` are those that the merge has changed, and those of the
    other store's workloads that are contested, whether or not they were so before."""

    trials: int = 0
    runs: int = 0
    workloads: int = 0
    picks: tuple[MergedPick, ...] = ()

"""What somebody else found out, and how it is kept: as theirs, and as nothing of ours."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.run import Outcome, Run
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Summary, Timing
from whet.core.trial import Trial
from whet.core.workload import Device, Workload
from whet.store import Store

# The part of a toolchain that tells foreign results from ours, whatever else agrees.
TIMER = "timer"


@dataclass(frozen=True)
class Tried:
    """One config. `timing` is None where it failed, and where only the choice is told."""

    config: Config
    status: Status = Status.OK
    timing: Summary | None = None
    error: str = ""


@dataclass(frozen=True)
class Finding:
    """All that a file says of one workload. `best` is its author's choice, `source` whose format
    it is, `created` when it was found out, in seconds since the epoch."""

    kernel: str
    device: str
    key: FrozenMap[Any]
    source: str
    tried: tuple[Tried, ...]
    best: Config | None = None
    toolchain: FrozenMap[str] = field(default_factory=FrozenMap)
    created: float = 0.0

    @cached_property
    def workload(self) -> Workload:
        """One of its own: no run of whet's has this toolchain, so that no timing is ever compared
        with these."""
        return Workload(
            kernel=self.kernel,
            fingerprint="",
            device=Device.of_name(self.device),
            key=self.key,
            toolchain=FrozenMap({**self.toolchain, TIMER: self.source}),
        )


def is_foreign(workload: Workload) -> bool:
    return not workload.fingerprint and TIMER in workload.toolchain


def quickest(tried: Iterable[Tried]) -> Config | None:
    """Of equals the first."""
    timed = [one for one in tried if one.timing is not None]
    best = min(
        timed, key=lambda one: one.timing.median_ns if one.timing else math.inf, default=None
    )
    return None if best is None else best.config


def keep(store: Store, findings: Iterable[Finding]) -> tuple[int, int]:
    """How many workloads were kept, and how many trials were new.

    What is kept a second time adds nothing: ids come from what is said.
    """
    workloads = trials = 0
    for finding in findings:
        run = _run(finding)
        if store.run(run.id) is None:
            store.save_run(run)
        trials += store.append(_trial(finding, one, run.id) for one in finding.tried)
        workloads += 1
    return workloads, trials


def _run(finding: Finding) -> Run:
    space = Space([one.config for one in finding.tried])
    said = [[one.config.id, str(one.status), _numbers(one.timing)] for one in finding.tried]
    best = finding.best
    return Run(
        workload=finding.workload,
        space_id=space.id,
        space_size=len(finding.tried),
        search="import",
        seed=0,
        outcome=Outcome.FINISHED,
        best=best,
        trials=len(finding.tried),
        started=finding.created,
        id=_id(finding.workload.id, said, None if best is None else best.id),
    )


def _trial(finding: Finding, tried: Tried, run_id: str) -> Trial:
    timing = tried.timing
    return Trial(
        workload_id=finding.workload.id,
        config=tried.config,
        status=tried.status,
        timing=None if timing is None else Timing((), finding.source, foreign=timing),
        error=tried.error,
        run_id=run_id,
        created=finding.created,
        id=_id(finding.workload.id, tried.config.id, str(tried.status), _numbers(timing)),
    )


def _numbers(timing: Summary | None) -> list[float]:
    return [] if timing is None else [timing.median_ns, timing.low_ns, timing.high_ns]


def _id(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

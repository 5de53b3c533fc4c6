"""Nouns to test with: whole, plausible, and different only where a test says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.core.workload import Device, Limits, Workload


def a_workload(**changes: Any) -> Workload:
    """`a_workload(kernel="softmax", key={"N": 512})`; plain dicts will do for the maps."""
    workload = Workload(
        kernel="matmul",
        fingerprint="3f786850e387550f",
        device=Device("Test CPU", "cpu", "x86_64", "6.1", Limits(l2_bytes=1 << 20, threads=8)),
        key=FrozenMap({"M": 512, "N": 512, "dtype": "f32"}),
        toolchain=FrozenMap({"cc": "gcc 12.2.0"}),
    )
    return replace(workload, **{name: _frozen(value) for name, value in changes.items()})


def a_timing(median_ns: float = 1000.0, **changes: Any) -> Timing:
    """Seven clean samples around `median_ns`."""
    steps = (0.0, 0.01, -0.01, 0.02, -0.02, 0.05, -0.03)
    timing = Timing(tuple(median_ns * (1 + step) for step in steps), timer="cpu", loops=8)
    return replace(timing, **changes)


def a_trial(
    workload: Workload,
    config: Mapping[str, Any] | None = None,
    median_ns: float = 1000.0,
    **changes: Any,
) -> Trial:
    """An `ok` trial; with a status that failed, one without a timing."""
    status = changes.get("status", Status.OK)
    trial = Trial(
        workload_id=workload.id,
        config=Config(config if config is not None else {"BM": 64, "BN": 32}),
        status=status,
        timing=None if status.failed else a_timing(median_ns),
        cost=Cost.of(build=0.25, measure=0.0125),
        facts=FrozenMap({"registers": 40, "spills": 0, "tile": (64, 32)}),
        error=f"it was {status}" if status.failed else "",
        created=1_700_000_000.0,
    )
    return replace(trial, **{name: _frozen(value) for name, value in changes.items()})


def a_run(workload: Workload, best: Mapping[str, Any] | None = None, **changes: Any) -> Run:
    """A finished run that chose `best`."""
    run = Run(
        workload=workload,
        space_id="9a0364b9e99bb480",
        space_size=6,
        search="grid",
        seed=7,
        outcome=Outcome.FINISHED,
        best=None if best is None else Config(best),
        trials=6,
        cost=Cost(FrozenMap({"build": 1.5}), FrozenMap({"measure": 0.5, "waiting": 1.5})),
        started=1_700_000_000.0,
        wall_s=2.0,
        whet="0.1.0",
    )
    return replace(run, **changes)


def _frozen(value: Any) -> Any:
    return FrozenMap(value) if isinstance(value, dict) else value

"""Everything about one trial."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from whet.core.errors import WhetError
from whet.core.trial import Trial
from whet.core.workload import Device
from whet.explorer.subject import NotThereError, Subject, config_json

# More would not be seen apart in any drawing.
MOST_SAMPLES = 5_000


def trial_json(subject: Subject, row: int, known: Trial | None = None) -> dict[str, Any]:
    trial = subject.trial(row) if known is None else known
    if trial is None:
        raise NotThereError(f"the config of row {row} was never tried on this key")
    timing, limit = trial.timing, trial.limit
    interval = None if timing is None else timing.interval_ns
    samples = [] if timing is None else list(timing.samples[:MOST_SAMPLES])
    return {
        "row": row,
        "id": trial.id,
        "config": config_json(trial.config),
        "config_id": trial.config.id,
        "status": str(trial.status),
        "median_ns": trial.median_ns,
        "low_ns": None if interval is None else interval[0],
        "high_ns": None if interval is None else interval[1],
        "samples": samples,
        "samples_total": 0 if timing is None else len(timing.samples),
        "timing": None if timing is None else timing.meta_json(),
        "registers": _fact(trial, "registers"),
        "spills": _fact(trial, "spills"),
        "shared_bytes": _fact(trial, "shared_bytes"),
        "occupancy": occupancy_of(trial, subject.workload.device),
        "facts": dict(trial.facts),
        "error": trial.error,
        "limit": None if limit is None else limit.to_json(),
        "cost": dict(trial.cost.work),
        "run": trial.run_id,
        "created": trial.created,
        "ir": list(subject.stages(trial)) if known is None else [],
    }


def stage_text(subject: Subject, row: int, stage: str) -> str:
    trial = subject.trial(row)
    kept = {} if trial is None else subject.stages(trial)
    if stage not in kept:
        what = f"; there is {', '.join(kept)}" if kept else "; tune with --keep-ir to keep some"
        raise NotThereError(f"no '{stage}' was kept of row {row}{what}")
    return kept[stage]


def occupancy_of(trial: Trial, device: Device) -> float | None:
    """The share of warps that can be resident, for a Triton config whose registers are known."""
    warps, registers = trial.config.get("num_warps"), _fact(trial, "registers")
    shared = _fact(trial, "shared_bytes")
    if type(warps) is not int or registers is None or shared is None:
        return None
    return _occupancy(device.architecture, warps, registers, shared)


@lru_cache(maxsize=1024)
def _occupancy(architecture: str, warps: int, registers: int, shared: int) -> float | None:
    # Imported when used: it is the target's to know what a multiprocessor holds.
    from whet.targets.triton.packed.architectures import architecture as known
    from whet.targets.triton.packed.architectures import occupancy

    try:
        unit = known(architecture).unit
    except WhetError:
        return None
    return None if unit is None else occupancy(unit, warps, registers, shared)


def _fact(trial: Trial, name: str) -> int | None:
    value = trial.facts.get(name)
    return value if type(value) is int else None

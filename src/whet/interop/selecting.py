"""Which of a store's workloads one file may be made from: one device, one source, one toolchain."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.errors import UsageError, did_you_mean
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.interop.left_out import left_out
from whet.store import WorkloadSummary


@dataclass(frozen=True)
class Selection:
    """The best of each workload, and what a person should know of the choice."""

    picks: tuple[tuple[Workload, Trial], ...]
    notes: tuple[str, ...] = ()


def select(
    known: Sequence[WorkloadSummary],
    *,
    devices: Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    source: str | None = None,
) -> Selection:
    """Of `known`, the most recently active first, those that belong together.

    Where a device has results of several sources or toolchains, the newest counts, or the newest
    of the fingerprint `source` where there is one. Results of two devices are refused unless both
    were named. The notes say what is left out, why, and how to get it in.
    """
    fitting = [one for one in known if one.best is not None and _fits(one.workload, where or {})]
    if not fitting:
        raise UsageError(_nothing(known, where or {}))
    usable = _of_devices(fitting, devices)
    chosen: dict[str, Workload] = {}
    for one in _preferred(usable, source):
        chosen.setdefault(one.workload.device.name, one.workload)
    kept = [one for one in usable if _made_alike(one.workload, chosen[one.workload.device.name])]
    once: dict[str, WorkloadSummary] = {}
    for one in kept:  # another driver, say: the same key again
        once.setdefault(_canonical([one.workload.device.name, dict(one.workload.key)]), one)
    picks = [(one.workload, one.best) for one in once.values() if one.best is not None]
    notes = left_out([one.workload for one in fitting], [one.workload for one in kept], chosen)
    contested = sum(bool(one.rivals) for one in once.values())
    if contested:
        which = "a pick is" if contested == 1 else f"{contested} picks are"
        notes += (f"{which} contested, because merged stores disagree; tune again to decide",)
    return Selection(tuple(sorted(picks, key=lambda pick: _order(pick[0]))), notes)


def _preferred(usable: Sequence[WorkloadSummary], source: str | None) -> Iterable[WorkloadSummary]:
    return sorted(usable, key=lambda one: source is not None and one.workload.fingerprint != source)


def _fits(workload: Workload, where: Mapping[str, Any]) -> bool:
    return all(
        name in workload.key and _canonical(workload.key[name]) == _canonical(value)
        for name, value in where.items()
    )


def _of_devices(usable: list[WorkloadSummary], devices: Sequence[str]) -> list[WorkloadSummary]:
    names = list(dict.fromkeys(one.workload.device.name for one in usable))
    for device in devices:
        if device not in names:
            raise UsageError(f"no results for device '{device}'{did_you_mean(device, names)}")
    if not devices and len(names) > 1:
        raise UsageError(
            f"there are results for {len(names)} devices ({', '.join(names)}); choose one with "
            "--device"
        )
    return [one for one in usable if not devices or one.workload.device.name in devices]


def _nothing(known: Sequence[WorkloadSummary], where: Mapping[str, Any]) -> str:
    kernel = known[0].workload.kernel if known else "the kernel"
    if any(one.best is not None for one in known) and where:
        asked = ", ".join(f"{name}={value}" for name, value in where.items())
        names = sorted({name for one in known for name in one.workload.key})
        return f"no workload of {kernel} has {asked}; its keys have: {', '.join(names)}"
    return f"no working config of {kernel} is known; tune it first"


def _made_alike(one: Workload, other: Workload) -> bool:
    return one.fingerprint == other.fingerprint and one.toolchain == other.toolchain


def _order(workload: Workload) -> tuple[Any, ...]:
    """By the key, numbers as numbers; the same whenever and in whatever order it was tuned."""
    parts = [(name, *_sortable(value)) for name, value in sorted(workload.key.items())]
    return (workload.device.name, parts, workload.id)


def _sortable(value: Any) -> tuple[int, int | float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, value, ""
    return 1, 0, _canonical(value)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))

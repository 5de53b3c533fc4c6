"""Which of a store's workloads one file may be made from: one device, one source, one toolchain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.errors import UsageError, did_you_mean
from whet.core.trial import Trial
from whet.core.workload import Workload
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
) -> Selection:
    """Of `known`, the most recently active first, those that belong together.

    Where a device has results of several sources or toolchains, the newest counts. Results of two
    devices are refused unless both were named.
    """
    usable = [one for one in known if one.best is not None and _fits(one.workload, where or {})]
    if not usable:
        raise UsageError(_nothing(known, where or {}))
    usable = _of_devices(usable, devices)
    newest: dict[str, str] = {}
    for one in usable:
        newest.setdefault(one.workload.device.name, _made_from(one.workload))
    kept = [one for one in usable if newest[one.workload.device.name] == _made_from(one.workload)]
    left = len(usable) - len(kept)
    once: dict[str, WorkloadSummary] = {}
    for one in kept:  # another driver, say: the same key again
        once.setdefault(_canonical([one.workload.device.name, dict(one.workload.key)]), one)
    notes = [f"left out: {left} of another source or toolchain, not the newest"] if left else []
    contested = sum(bool(one.rivals) for one in once.values())
    if contested:
        which = "a pick is" if contested == 1 else f"{contested} picks are"
        notes.append(f"{which} contested, since merged stores disagree; tune again to decide")
    picks = [(one.workload, one.best) for one in once.values() if one.best is not None]
    return Selection(tuple(sorted(picks, key=lambda pick: _order(pick[0]))), tuple(notes))


def _fits(workload: Workload, where: Mapping[str, Any]) -> bool:
    return all(
        name in workload.key and _canonical(workload.key[name]) == _canonical(value)
        for name, value in where.items()
    )


def _of_devices(usable: list[WorkloadSummary], devices: Sequence[str]) -> list[WorkloadSummary]:
    names = list(dict.fromkeys(one.workload.device.name for one in usable))
    for device in devices:
        if device not in names:
            raise UsageError(f"nothing is known of device '{device}'{did_you_mean(device, names)}")
    if not devices and len(names) > 1:
        raise UsageError(
            f"there are results of {len(names)} devices ({', '.join(names)}); choose with --device"
        )
    return [one for one in usable if not devices or one.workload.device.name in devices]


def _nothing(known: Sequence[WorkloadSummary], where: Mapping[str, Any]) -> str:
    kernel = known[0].workload.kernel if known else "the kernel"
    if any(one.best is not None for one in known) and where:
        asked = ", ".join(f"{name}={value}" for name, value in where.items())
        names = sorted({name for one in known for name in one.workload.key})
        return f"no workload of {kernel} has {asked}; its keys are made of: {', '.join(names)}"
    return f"no config of {kernel} is known to work; tune it first"


def _made_from(workload: Workload) -> str:
    return _canonical([workload.fingerprint, dict(workload.toolchain)])


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

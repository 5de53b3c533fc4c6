"""Which of a store's workloads one file may be made from: one device, one source, one toolchain."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.config import Config
from whet.core.errors import UsageError, did_you_mean
from whet.core.trial import Trial
from whet.core.workload import Workload, captured_differences
from whet.store import WorkloadSummary

_SHOWN = 3
_AGAIN = "tune them again with the current code"


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
    for one in sorted(usable, key=lambda one: source not in (None, one.workload.fingerprint)):
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


@dataclass(frozen=True)
class _Reason:
    """Why a workload is not in the file, and what gets it in. `captured` are the names of values
    that tell it from those that are, where its code is the same."""

    why: str
    remedy: str
    captured: tuple[str, ...] = ()


def left_out(
    usable: Sequence[Workload], kept: Sequence[Workload], chosen: Mapping[str, Workload]
) -> tuple[str, ...]:
    """A sentence for each reason. `chosen` says by device what the rest was compared with; a
    device that is not in it was not asked for."""
    ids = {one.id for one in kept}
    inside = {(one.device.name, one.key) for one in kept}
    groups: dict[_Reason, list[Workload]] = {}
    older = 0
    for one in usable:
        if one.id in ids:
            continue
        reason = _reason(one, chosen.get(one.device.name))
        if (one.device.name, one.key) in inside and not reason.captured:
            older += 1
        else:
            groups.setdefault(reason, []).append(one)
    notes = [_note(reason, workloads) for reason, workloads in groups.items()]
    if older:
        notes.append(
            f"not exported: {_count(older, 'older result')} for keys already included, from "
            "another source or toolchain"
        )
    return tuple(notes)


def _note(reason: _Reason, workloads: Sequence[Workload]) -> str:
    labels = list(dict.fromkeys(_label(one, reason.captured) for one in workloads))
    shown = [*filter(None, labels[:_SHOWN]), *(["…"] if len(labels) > _SHOWN else [])]
    listed = f" ({'; '.join(shown)})" if shown else ""
    return f"not exported: {_count(len(labels), 'key')}{listed}, {reason.why}: {reason.remedy}"


def _label(workload: Workload, captured: Sequence[str]) -> str:
    parts = {name: workload.origin.captured[name] for name in captured}
    parts |= {name: str(value) for name, value in workload.key.items()}
    return " ".join(f"{name}={value}" for name, value in parts.items())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _reason(one: Workload, chosen: Workload | None) -> _Reason:
    if chosen is None:
        return _Reason(f"of {one.device.name}", f"add --device {shlex.quote(one.device.name)}")
    if one.fingerprint != chosen.fingerprint:
        return _other_source(one, chosen)
    return _Reason(
        f"built with {_tools(one)}, not {_tools(chosen)}", "tune them again with the latter"
    )


def _other_source(one: Workload, chosen: Workload) -> _Reason:
    if not one.origin.code or not chosen.origin.code:
        return _Reason("from another source (whet 0.1 did not record what differs)", _AGAIN)
    if one.origin.code == chosen.origin.code:
        changes = captured_differences(chosen.origin, one.origin)
        names = " and ".join(changes)
        values = " and ".join(f"{name}={ours}" for name, (ours, _) in changes.items())
        return _Reason(
            f"from the same code with a different {names} captured (in the file: {values})",
            f"put {names} in key= and tune them again",
            tuple(changes),
        )
    place = _place(one)
    if place and _file(place) != _file(_place(chosen)):
        return _Reason(f"from a different {one.kernel}", f"export {shlex.quote(place)} as well")
    return _Reason("from an earlier version of the kernel", _AGAIN)


def _tools(workload: Workload) -> str:
    return ", ".join(f"{tool} {version}" for tool, version in workload.toolchain.items())


def _place(workload: Workload) -> str:
    return workload.origin.places[0] if workload.origin.places else ""


def _file(place: str) -> str:
    return place.rpartition(":")[0]


@dataclass(frozen=True)
class MeasuredWorkload:
    """A workload, its best, and the latest trial of each of its configs."""

    workload: Workload
    best: Trial
    trials: Sequence[Trial]

    def times(self) -> dict[Config, float]:
        """Nanoseconds of what may be compared with the best; of an untimed one, only that."""
        best = self.best.timing
        if best is None:
            return {self.best.config: 1.0}
        return {
            trial.config: trial.timing.median_ns
            for trial in self.trials
            if trial.status.measured
            and trial.timing is not None
            and trial.timing.median_ns > 0
            and trial.timing.taken_like(best)
        }

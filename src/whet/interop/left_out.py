"""What an export leaves out, why, and how to get it in."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.core.workload import Workload, captured_differences

_SHOWN = 3
_AGAIN = "tune them again with the current code"


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

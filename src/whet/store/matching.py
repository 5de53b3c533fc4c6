"""Workloads compared: the nearest known one, to learn from where this very one was never tuned;
which devices look alike; and what was built with which tools."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from whet.core.workload import Device, Workload
from whet.store.protocol import Match, StoreReader

# In doublings. Another dtype or a missing name is farther than sizes plausibly get.
UNLIKE = 32.0


def nearest(asked: Workload, known: Iterable[Workload]) -> Match | None:
    """The loose match among `known`, whose kernels are taken to be the asked one's."""
    ranked = [(_rank(asked, other), other) for other in known]
    if not ranked:
        return None
    _, found = min(ranked, key=lambda pair: pair[0])
    return Match("loose", found, differences(asked, found))


def key_distance(one: Mapping[str, Any], two: Mapping[str, Any]) -> float:
    """In doublings: `{"M": 1024}` and `{"M": 2048}` are about 1 apart."""
    return sum(
        _distance(one[name], two[name]) if name in one and name in two else UNLIKE
        for name in one.keys() | two.keys()
    )


def _distance(one: Any, two: Any) -> float:
    if _is_number(one) and _is_number(two):
        return abs(_log(one) - _log(two))
    if isinstance(one, list | tuple) and isinstance(two, list | tuple) and len(one) == len(two):
        return sum(_distance(a, b) for a, b in zip(one, two, strict=True))
    return 0.0 if one == two else UNLIKE


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _log(value: float) -> float:
    """log2, made whole around zero and mirrored below it."""
    return math.copysign(math.log2(1 + abs(value)), value)


def _rank(asked: Workload, other: Workload) -> tuple[int, float, bool, str]:
    differs = differences(asked, other)
    tier = 2 * ("device" in differs) + ("fingerprint" in differs)
    return tier, key_distance(asked.key, other.key), "toolchain" in differs, other.id


def differences(one: Workload, two: Workload) -> tuple[str, ...]:
    """Which of `fingerprint`, `key`, `device` and `toolchain` are not the same."""
    mine, theirs = _identity(one), _identity(two)
    return tuple(part for part in mine if mine[part] != theirs[part])


def _identity(workload: Workload) -> dict[str, Any]:
    """The parts of `Workload.id`: a tuple and a list are one, and limits are left out."""
    device = workload.device
    return {
        "fingerprint": workload.fingerprint,
        "key": json.dumps(dict(workload.key), sort_keys=True),
        "device": (device.name, device.vendor, device.architecture, device.driver),
        "toolchain": dict(workload.toolchain),
    }


def matches(version: str, asked: str) -> bool:
    """`3.5` is 3.5 and 3.5.1, and neither 3.50 nor 13.5; `gcc` is any gcc."""
    return re.search(rf"(?<![\w.]){re.escape(asked)}(?!\w)", version) is not None


def built_with(workload: Workload, chosen: Mapping[str, Collection[str]]) -> bool:
    """True where one of its tools is of a version that is among the chosen."""
    return any(version in chosen.get(tool, ()) for tool, version in workload.toolchain.items())


def versions(workloads: Iterable[Workload]) -> dict[str, tuple[str, ...]]:
    """Every version of every tool that something was built with, the oldest first."""
    found: dict[str, set[str]] = {}
    for workload in workloads:
        for tool, version in workload.toolchain.items():
            found.setdefault(tool, set()).add(version)
    return {tool: tuple(sorted(some, key=_order)) for tool, some in sorted(found.items())}


def current(known: Mapping[str, Collection[str]], here: Mapping[str, str]) -> dict[str, set[str]]:
    """The versions that are not outdated: `here`'s, and the newest known of each make.

    `{"cc": ["gcc 11", "gcc 12", "clang 14"]}` keeps the last two.
    """
    kept: dict[str, set[str]] = {}
    for tool, some in known.items():
        newest = {_make(version): version for version in sorted(some, key=_order)}
        kept[tool] = {*newest.values(), *([here[tool]] if tool in here else [])}
    return kept


def _make(version: str) -> str:
    """What comes before the number: `gcc (Debian ` of `gcc (Debian 12.2.0-14) 12.2.0`."""
    return re.split(r"\d", version, maxsplit=1)[0]


def _order(version: str) -> tuple[str, tuple[int, ...], str]:
    return _make(version), tuple(map(int, re.findall(r"\d+", version))), version


def arriving(store: StoreReader, other: StoreReader) -> list[Workload]:
    """What a merge of `other` would make known that `store` does not know yet."""
    known = {summary.workload.id for summary in store.workloads()}
    theirs = [summary.workload for summary in other.workloads()]
    return [workload for workload in theirs if workload.id not in known]


def identity(device: Device) -> Device:
    """Equal for devices whose results are each other's: limits are left out, as in `Workload.id`"""
    return Device(device.name, device.vendor, device.architecture, device.driver)


def lookalikes(devices: Iterable[Device]) -> list[tuple[Device, ...]]:
    """Devices of one name that are not the same: another driver, architecture or vendor."""
    by_name: dict[str, dict[Device, None]] = {}
    for device in devices:
        by_name.setdefault(device.name, {})[identity(device)] = None
    return [tuple(several) for several in by_name.values() if len(several) > 1]

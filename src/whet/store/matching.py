"""The nearest known workload: what to learn from when this very one was never tuned."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from whet.core.workload import Workload
from whet.store.protocol import Match

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
    """Which of `fingerprint`, `key`, `device` and `toolchain` the two do not share."""
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

"""Which devices agree: pure statistics over rounds in which all of them ran the same kernels."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from whet.core.frozen import FrozenMap
from whet.store.protocol import Models

FORMAT, VERSION = "whet-devices", 1

# From a median absolute deviation to a standard deviation, and from a mean's to a median's error.
_MAD, _MEDIAN_ERROR = 1.4826, 1.2533


@dataclass(frozen=True)
class AgreementPolicy:
    """Devices agree whose levels lie within `tolerance` of each other, over the last `rounds`
    rounds. One has drifted that moved by more than half of it meanwhile, and by `sure` times what
    noise explains. What is stored holds for `valid_s`."""

    tolerance: float = 0.02
    rounds: int = 9
    kernels: int = 3
    sure: float = 4.0
    valid_s: float = 24 * 3600.0


@dataclass(frozen=True)
class DeviceStanding:
    """Of one device against all: `level` is how much longer it takes (0.07 is 7 %), `move` how much
    that changed over the rounds, and each has its standard error."""

    level: float
    move: float
    error: float
    move_error: float

    def text(self) -> str:
        return f"{abs(self.level):.1%} {'slower' if self.level > 0 else 'faster'} than the others"


@dataclass(frozen=True)
class DeviceAgreement:
    """`left_out` says why, by device."""

    standings: FrozenMap[DeviceStanding] = field(default_factory=FrozenMap)
    left_out: FrozenMap[str] = field(default_factory=FrozenMap)

    @property
    def agreeing(self) -> tuple[str, ...]:
        return tuple(name for name in self.standings if name not in self.left_out)


# Nanoseconds by kernel, of each device that took part in the round.
Round = Mapping[str, Mapping[str, float]]


def agreement(
    rounds: Sequence[Round], policy: AgreementPolicy, prefer: Sequence[str] = ()
) -> DeviceAgreement:
    """Of every device in the last round. Between groups of equal size, the one with whoever comes
    first in `prefer` counts."""
    names = list(rounds[-1]) if rounds else []
    if len(names) < 2:
        return DeviceAgreement(
            FrozenMap({name: DeviceStanding(0.0, 0.0, 0.0, 0.0) for name in names})
        )
    residuals = {name: _residuals(name, rounds[-policy.rounds :]) for name in names}
    noises = {name: _noise(found) for name, found in residuals.items()}
    # Few rounds may look calm by chance: nobody is taken to be calmer than most.
    usual = median(noises.values())
    standings = {
        name: _standing(found, max(usual, noises[name])) for name, found in residuals.items()
    }
    drifting = {
        name: f"{abs(one.move):.1%} {'slower' if one.move > 0 else 'faster'} than at the beginning"
        for name, one in standings.items()
        if abs(one.move) > max(policy.tolerance / 2, policy.sure * one.move_error)
    }
    # One that drifts moves the centre, so that others seem to drift the other way: worst first.
    worst = max(drifting, key=lambda name: abs(standings[name].move), default=None)
    if worst is not None and len(names) > 2:
        rest = [{n: k for n, k in one.items() if n != worst} for one in rounds]
        found = agreement(rest, policy, prefer)
        return DeviceAgreement(
            FrozenMap({**found.standings, worst: standings[worst]}),
            FrozenMap({**found.left_out, worst: f"it drifts: {drifting[worst]}"}),
        )
    group = _largest_group(standings, policy, prefer)
    deviating = {name: one.text() for name, one in standings.items() if name not in group}
    return DeviceAgreement(FrozenMap(standings), FrozenMap(deviating))


def _residuals(name: str, rounds: Iterable[Round]) -> list[float]:
    """By how much it differs from the middle of all, in each round it took part in: what moves
    all devices at once, such as the room's temperature, is in none of them."""
    found = []
    for one in rounds:
        mine = one.get(name)
        if not mine:
            continue
        middles = {
            kernel: median(math.log(other[kernel]) for other in one.values() if kernel in other)
            for kernel in mine
        }
        found.append(median(math.log(ns) - middles[kernel] for kernel, ns in mine.items()))
    return found


def _noise(residuals: Sequence[float]) -> float:
    """The standard deviation of one round, about a straight line."""
    level, slope, middle = median(residuals), _slope(residuals), (len(residuals) - 1) / 2
    off = [abs(one - level - slope * (at - middle)) for at, one in enumerate(residuals)]
    return _MAD * median(off)


def _standing(residuals: Sequence[float], noise: float) -> DeviceStanding:
    many = len(residuals)
    error = _MEDIAN_ERROR * noise / math.sqrt(many)
    # That of a slope over so many rounds, times their number.
    move_error = noise * (many - 1) / math.sqrt(many * (many**2 - 1) / 12) if many > 1 else 0.0
    return DeviceStanding(median(residuals), _slope(residuals) * (many - 1), error, move_error)


def _slope(values: Sequence[float]) -> float:
    """Theil and Sen's: one round in which something went wrong does not tilt it."""
    pairs = [
        (values[j] - values[i]) / (j - i)
        for i in range(len(values))
        for j in range(i + 1, len(values))
    ]
    return median(pairs) if len(values) > 3 else 0.0


def _largest_group(
    standings: Mapping[str, DeviceStanding], policy: AgreementPolicy, prefer: Sequence[str]
) -> frozenset[str]:
    width = policy.tolerance + 2 * median(one.error for one in standings.values())
    ranked = sorted(standings, key=lambda name: standings[name].level)
    groups = [
        frozenset(n for n in ranked if 0 <= standings[n].level - standings[low].level <= width)
        for low in ranked
    ]
    first = next((name for name in prefer if name in standings), ranked[0])
    return max(groups, key=lambda group: (len(group), first in group))


@dataclass(frozen=True)
class KeptAgreement:
    """What a calibration found, as it is stored. `date` is in seconds since the epoch."""

    date: float
    devices: tuple[str, ...]
    levels: FrozenMap[float]
    left_out: FrozenMap[str]
    kernels: int
    rounds: int

    @classmethod
    def of(cls, found: DeviceAgreement, rounds: Sequence[Round]) -> KeptAgreement:
        kernels = {kernel for one in rounds for ns in one.values() for kernel in ns}
        return cls(
            date=time.time(),
            devices=tuple(found.standings),
            levels=FrozenMap({name: one.level for name, one in found.standings.items()}),
            left_out=found.left_out,
            kernels=len(kernels),
            rounds=len(rounds),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "v": VERSION,
            "date": self.date,
            "devices": list(self.devices),
            "levels": dict(self.levels),
            "left_out": dict(self.left_out),
            "kernels": self.kernels,
            "rounds": self.rounds,
        }


def _name(where: str) -> str:
    return f"devices{hashlib.sha256(where.encode()).hexdigest()[:16]}"


def keep(models: Models, where: str, found: KeptAgreement) -> None:
    """Beside the results; where that cannot be written, the next run calibrates again."""
    try:
        models[_name(where)] = json.dumps(found.to_json(), sort_keys=True)
    except (OSError, TypeError):
        return


def kept(models: Models, where: str) -> KeptAgreement | None:
    text = models.get(_name(where))
    if text is None:
        return None
    try:
        data = json.loads(text)
        if data["format"] != FORMAT or data["v"] != VERSION:
            return None
        return KeptAgreement(
            float(data["date"]),
            tuple(map(str, data["devices"])),
            FrozenMap({str(name): float(level) for name, level in data["levels"].items()}),
            FrozenMap({str(name): str(why) for name, why in data["left_out"].items()}),
            int(data["kernels"]),
            int(data["rounds"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

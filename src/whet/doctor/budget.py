"""Limits for a model in CI: a TOML file of what it may not exceed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from whet.doctor.checkup import Diagnosis
    from whet.doctor.modes.verdict import ModeTrial


@dataclass(frozen=True)
class DoctorBudget:
    """Every limit is optional. `latency_ms` and `first_call_s` are of `mode`; `slower_than_eager`
    is the share by which that may be slower than eager: 0.05 is 5 %."""

    graph_breaks: int | None = None
    recompilations: int | None = None
    findings: int | None = None
    mode: str | None = None
    latency_ms: float | None = None
    first_call_s: float | None = None
    slower_than_eager: float | None = None

    @property
    def needs_modes(self) -> bool:
        limits = (self.latency_ms, self.first_call_s, self.slower_than_eager)
        return any(limit is not None for limit in limits)


def read_budget(path: Path) -> DoctorBudget:
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    names = [field.name for field in fields(DoctorBudget)]
    for name, value in data.items():
        if name not in names:
            raise UsageError(f"{path} has no limit '{name}'{did_you_mean(name, names)}")
        _check(path, name, value)
    return DoctorBudget(**data)


def _check(path: Path, name: str, value: Any) -> None:
    if name == "mode":
        from whet.doctor.checkup import checked_modes

        if not isinstance(value, str):
            raise UsageError(f"'mode' in {path} is not a text, such as 'max-autotune'")
        checked_modes([value])
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value < 0:
        raise UsageError(f"'{name}' in {path} is not a number of 0 or more")


def over_budget(done: Diagnosis, limits: DoctorBudget) -> list[str]:
    """A sentence for each limit that is exceeded, or that cannot be checked."""
    counted = _counts(done)
    exceeded = [
        f"{name.replace('_', ' ')}: {counted[name]}, at most {limit} allowed"
        for name in counted
        if (limit := getattr(limits, name)) is not None and counted[name] > limit
    ]
    unseen = [line for line in done.examination.left_out if _concerns(line, limits)]
    if limits.needs_modes:
        exceeded += _timings(done, limits)
    return [*exceeded, *unseen]


def _counts(done: Diagnosis) -> dict[str, int]:
    found = done.examination.findings

    def count(name: str) -> int:
        return sum(one.count for one in found if one.name == name)

    return {
        "graph_breaks": count("graph-break"),
        "recompilations": count("recompilation"),
        "findings": len(found),
    }


def _concerns(line: str, limits: DoctorBudget) -> bool:
    """A limit that could not be checked does not pass."""
    if limits.findings is not None:
        return True
    breaks = limits.graph_breaks is not None and "graph breaks" in line
    return breaks or (limits.recompilations is not None and "recompilations" in line)


def _timings(done: Diagnosis, limits: DoctorBudget) -> list[str]:
    modes = {} if done.trial is None else {one.mode: one for one in done.trial.modes}
    verdict = None if done.trial is None else done.trial.verdict
    name = limits.mode or ("" if verdict is None else verdict.mode)
    chosen = modes.get(name)
    if chosen is None or chosen.median_ns is None:
        return [f"mode '{name}' was not timed, so that its limits cannot be checked"]
    return [*_too_long(chosen, limits), *_too_slow(chosen, modes.get("eager"), limits)]


def _too_long(mode: ModeTrial, limits: DoctorBudget) -> list[str]:
    said = []
    low_ns = (mode.interval_ns or (mode.median_ns or 0.0, 0.0))[0]
    if limits.latency_ms is not None and low_ns / 1e6 > limits.latency_ms:
        took = (mode.median_ns or 0.0) / 1e6
        said.append(f"{mode.mode} takes {took:.3g} ms a call, at most {limits.latency_ms} allowed")
    first = mode.first_call_s
    if limits.first_call_s is not None and first is not None and first > limits.first_call_s:
        said.append(
            f"the first call of {mode.mode} takes {first:.3g} s, at most {limits.first_call_s} "
            "allowed"
        )
    return said


def _too_slow(mode: ModeTrial, eager: ModeTrial | None, limits: DoctorBudget) -> list[str]:
    """At 95 %: the ends of the two intervals that are nearest to each other."""
    if limits.slower_than_eager is None or eager is None or not eager.median_ns:
        return []
    low_ns = (mode.interval_ns or (mode.median_ns or 0.0, 0.0))[0]
    high_ns = (eager.interval_ns or (0.0, eager.median_ns))[1]
    if low_ns <= high_ns * (1 + limits.slower_than_eager):
        return []
    share = 100 * ((mode.median_ns or 0.0) / eager.median_ns - 1)
    allowed = 100 * limits.slower_than_eager
    return [f"{mode.mode} is {share:.0f} % slower than eager, at most {allowed:.0f} % allowed"]

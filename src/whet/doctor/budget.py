"""Limits for a model in CI: a TOML file of what it may not exceed."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.errors import UsageError, did_you_mean
from whet.core.toml import parse_toml

if TYPE_CHECKING:
    from whet.doctor.finding import Diagnosis
    from whet.doctor.modes.verdict import ModeTrial


@dataclass(frozen=True)
class DoctorBudget:
    """Every limit is optional. `last_recompile` is the call after which nothing may be compiled
    again. `latency_ms` and `first_call_s` are of `mode`; `slower_than_eager` is the share by which
    that may be slower than eager: 0.05 is 5 %. `baseline` is a file that `whet doctor --json`
    wrote, and `slower_than_baseline` the share by which the mode may be slower than it was then."""

    graph_breaks: int | None = None
    recompilations: int | None = None
    last_recompile: int | None = None
    findings: int | None = None
    mode: str | None = None
    latency_ms: float | None = None
    first_call_s: float | None = None
    slower_than_eager: float | None = None
    baseline: str | None = None
    slower_than_baseline: float = 0.05

    @property
    def needs_modes(self) -> bool:
        limits = (self.latency_ms, self.first_call_s, self.slower_than_eager, self.baseline)
        return any(limit is not None for limit in limits)


def read_budget(path: Path) -> DoctorBudget:
    try:
        data = parse_toml(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    names = [field.name for field in fields(DoctorBudget)]
    for name, value in data.items():
        if name not in names:
            raise UsageError(f"{path} has no limit '{name}'{did_you_mean(name, names)}")
        _check(path, name, value)
    limits = DoctorBudget(**data)
    if limits.baseline is None:
        return limits
    return replace(limits, baseline=str(path.parent / limits.baseline))


def _check(path: Path, name: str, value: Any) -> None:
    if name == "mode":
        from whet.doctor.checkup import checked_modes

        if not isinstance(value, str):
            raise UsageError(f"'mode' in {path} is not a text, such as 'max-autotune'")
        checked_modes([value])
        return
    if name == "baseline":
        if not isinstance(value, str):
            raise UsageError(f"'baseline' in {path} is not the name of a file")
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
    exceeded += _late(done, limits)
    unseen = [line for line in done.examination.left_out if _concerns(line, limits)]
    if limits.needs_modes:
        exceeded += _timings(done, limits)
    return [*exceeded, *unseen]


def _counts(done: Diagnosis) -> dict[str, int]:
    found = done.examination.findings

    def count(name: str) -> int:
        return sum(one.count for one in found if one.name == name)

    return {
        "graph_breaks": count("graph-break") + count("not-compiled"),
        "recompilations": count("recompilation"),
        "findings": len(found),
    }


def _late(done: Diagnosis, limits: DoctorBudget) -> list[str]:
    last = max((one.call for one in done.examination.findings), default=0)
    if limits.last_recompile is None or last <= limits.last_recompile:
        return []
    return [f"compiled again at call {last}, at most until call {limits.last_recompile} allowed"]


def _concerns(line: str, limits: DoctorBudget) -> bool:
    """A limit that could not be checked does not pass."""
    if limits.findings is not None:
        return True
    breaks = limits.graph_breaks is not None and "graph breaks" in line
    again = limits.recompilations is not None or limits.last_recompile is not None
    return breaks or (again and "recompilations" in line)


def _timings(done: Diagnosis, limits: DoctorBudget) -> list[str]:
    modes = {} if done.trial is None else {one.mode: one for one in done.trial.modes}
    verdict = None if done.trial is None else done.trial.verdict
    name = limits.mode or ("" if verdict is None else verdict.mode)
    chosen = modes.get(name)
    if chosen is None or chosen.median_ns is None:
        return [f"mode '{name}' was not timed, so that its limits cannot be checked"]
    return [
        *_too_long(chosen, limits),
        *_too_slow(chosen, modes.get("eager"), limits),
        *_against_baseline(done, chosen, limits),
    ]


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


def _against_baseline(done: Diagnosis, mode: ModeTrial, limits: DoctorBudget) -> list[str]:
    """At 95 % as well. A baseline of another device or without the mode is no baseline."""
    if limits.baseline is None:
        return []
    before = _read_baseline(Path(limits.baseline))
    if before.get("device") != done.device:
        there = before.get("device") or "an unknown device"
        return [f"{limits.baseline} is from {there}, not from {done.device}; measure it again here"]
    trial = before.get("trial") or {}
    known = {one["mode"]: one for one in trial.get("modes", ()) if one["median_ns"]}
    old = known.get(mode.mode)
    if old is None:
        return [f"{limits.baseline} has no timing of {mode.mode}"]
    high_ns = (old.get("interval_ns") or (0.0, old["median_ns"]))[1]
    low_ns = (mode.interval_ns or (mode.median_ns or 0.0, 0.0))[0]
    if low_ns <= high_ns * (1 + limits.slower_than_baseline):
        return []
    share = 100 * ((mode.median_ns or 0.0) / old["median_ns"] - 1)
    allowed = 100 * limits.slower_than_baseline
    return [
        f"{mode.mode} is {share:.0f} % slower than in {limits.baseline}, at most {allowed:.0f} % "
        "allowed"
    ]


def _read_baseline(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(
            f"cannot read the baseline {path}: {error.strerror}; write it with "
            f"'whet doctor FILE.py:FUNCTION --json > {path}'"
        ) from None
    except ValueError as error:
        raise UsageError(f"the baseline {path} is not valid JSON: {error}") from None
    if not isinstance(data, dict) or data.get("v") != 1:
        raise UsageError(f"the baseline {path} was not written by 'whet doctor --json'")
    return data

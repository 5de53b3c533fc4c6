"""What one mode's trial says, read from what the store keeps of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.status import Status
from whet.core.trial import Trial
from whet.doctor.modes.compiler import TunedOp
from whet.doctor.modes.numerics import OutputError, read_outputs
from whet.doctor.modes.profile import KernelTime
from whet.measure.racing.stats import paired_ratio

# Of the comparison of one mode with eager, so that it holds for all of them together.
CONFIDENCE = 0.99


@dataclass(frozen=True)
class WarmStart:
    """A second process that found the caches filled: what its first call took, how many graphs it
    found, compiled again or could not look up, and how many operations it tuned again."""

    first_call_s: float
    hits: int = 0
    misses: int = 0
    bypasses: int = 0
    tuned: int = 0
    why: str = ""


@dataclass(frozen=True)
class StepProfile:
    """Of one settled step. `device_ns` is how long the device is busy, `host_ns` how long the host
    takes to issue it; both None on a CPU. A CUDA graph is one launch of many kernels. `layers` are
    the model's with their nanoseconds, for eager alone."""

    kernels: tuple[KernelTime, ...] = ()
    launches: float | None = None
    device_kernels: float | None = None
    device_ns: float | None = None
    host_ns: float | None = None
    layers: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class ModeTrial:
    """`rounds` are the nanoseconds of eager and of the mode, taken in turns, and `beside_eager`
    says how many times as fast as eager the mode is in them: the lower end of the interval, the
    middle, the upper end. `first_call_s` has the compilation in it, with empty caches.
    `recording_s` is what the second and third call took beyond a steady one: under CUDA graphs that
    is the recording. `error` is relative to the same model in float64; `eager_error` is that of the
    model without a compiler. `cudagraph_skip` says why CUDA graphs were not used where the mode
    asks for them; `recorded_again` is how many were recorded in 8 steps after the model had
    settled. `far_from` is the layer from which on results are far off, empty where no layer alone
    is, and `far_part` the part of the compiler that it comes from, as `first_far_part` has it;
    modes with the same `digest` give the same results to the last bit. `same_as` is the mode before
    it whose generated code is the same; then its profile and its errors are that one's."""

    mode: str
    status: str
    median_ns: float | None = None
    interval_ns: tuple[float, float] | None = None
    first_call_s: float | None = None
    recording_s: float | None = None
    peak_bytes: int | None = None
    error: float | None = None
    eager_error: float | None = None
    close_to_eager: bool | None = None
    cudagraph_skip: str = ""
    recorded_again: int | None = None
    problem: str = ""
    warm: WarmStart | None = None
    step: StepProfile | None = None
    autotune: tuple[TunedOp, ...] = ()
    perf_hints: tuple[str, ...] = ()
    outputs: tuple[OutputError, ...] = ()
    far_from: str = ""
    far_part: str = ""
    digest: str = ""
    not_heard: str = ""
    same_as: str = ""
    rounds: tuple[tuple[float, float], ...] = ()
    beside_eager: tuple[float, float, float] | None = None


def mode_trial(name: str, trial: Trial) -> ModeTrial:
    """Facts that an older trial lacks are None."""
    facts, timing, median_ns = trial.facts, trial.timing, trial.median_ns
    calls = [_number(facts, "second_call_s"), _number(facts, "third_call_s")]
    recording = None
    if median_ns is not None and None not in calls:
        recording = max(0.0, sum(one or 0.0 for one in calls) - 2 * median_ns / 1e9)
    close = facts.get("close_to_eager")
    rounds = tuple((float(eager), float(own)) for eager, own in _listed(facts, "beside_eager"))
    return ModeTrial(
        mode=name,
        status=str(Status.OK if trial.status is Status.OUTRACED else trial.status),
        median_ns=median_ns,
        interval_ns=None if timing is None else timing.interval_ns,
        first_call_s=_number(facts, "first_call_s"),
        recording_s=recording,
        peak_bytes=_count(facts, "peak_bytes"),
        error=_number(facts, "error"),
        eager_error=_number(facts, "eager_error"),
        close_to_eager=close if isinstance(close, bool) else None,
        cudagraph_skip=str(facts.get("cudagraph_skip", "")),
        recorded_again=_count(facts, "recorded_again"),
        problem=trial.error if trial.status not in (Status.OK, Status.OUTRACED) else "",
        warm=_warm(facts),
        step=_step(facts),
        autotune=tuple(TunedOp.from_json(one) for one in _listed(facts, "autotune")),
        perf_hints=tuple(str(one) for one in _listed(facts, "perf_hints")),
        outputs=read_outputs(facts),
        far_from=str(facts.get("far_from", "")).removeprefix("-"),  # of an older whet: none
        far_part=str(facts.get("far_part", "")),
        digest=str(facts.get("digest", "")),
        not_heard=_not_heard(facts),
        same_as=str(facts.get("same_as", "")),
        rounds=rounds,
        beside_eager=_beside(rounds),
    )


def _beside(rounds: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    eager, own = [one for one, _ in rounds], [one for _, one in rounds]
    ratio = paired_ratio(eager, own, CONFIDENCE) if rounds else None
    return None if ratio is None else (ratio.low, ratio.mid, ratio.high)


def _number(facts: Mapping[str, Any], key: str) -> float | None:
    value = facts.get(key)
    return float(value) if isinstance(value, int | float) else None


def _count(facts: Mapping[str, Any], key: str) -> int | None:
    value = _number(facts, key)
    return None if value is None else int(value)


def _listed(facts: Mapping[str, Any], key: str) -> list[Any]:
    text = facts.get(key)
    listed = json.loads(text) if isinstance(text, str) else []
    return listed if isinstance(listed, list) else []


def _warm(facts: Mapping[str, Any]) -> WarmStart | None:
    took = _number(facts, "warm_first_call_s")
    if took is None:
        return None
    hits, misses, bypasses, tuned = (
        _count(facts, f"warm_{name}") or 0 for name in ("hit", "miss", "bypass", "autotune")
    )
    return WarmStart(took, hits, misses, bypasses, tuned, str(facts.get("warm_why", "")))


def _step(facts: Mapping[str, Any]) -> StepProfile | None:
    if "kernels" not in facts:
        return None
    kernels = tuple(
        KernelTime(str(name), float(calls), float(ns))
        for name, calls, ns in _listed(facts, "kernels")
    )
    counted = {
        key: _number(facts, key) for key in ("launches", "device_kernels", "device_ns", "host_ns")
    }
    layers = tuple((str(where), float(ns)) for where, ns in _listed(facts, "layers"))
    return StepProfile(kernels, layers=layers, **counted)


def _not_heard(facts: Mapping[str, Any]) -> str:
    said = [facts.get(key) for key in ("not_heard", "second_process", "not_profiled")]
    return "; ".join(str(one) for one in said if one)

"""From the trials of all modes to one recommendation."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from whet.core.run import Result
from whet.core.status import Status
from whet.core.timing import median, median_interval
from whet.core.trial import Trial
from whet.doctor.modes.compiler import KernelTime, TunedOp
from whet.doctor.modes.loaded import OutputError, read_outputs
from whet.doctor.modes.variants import EAGER, variant
from whet.measure.racing.stats import paired_ratio

# Among modes that could not be told apart, one that compiles sooner may be so much slower.
AS_GOOD_WITHIN = 0.01

# What a benchmark by hand often does after a single warm-up call.
TIMED_BY_HAND = 50
MISLEADING_ABOVE = 1.2

# Of the comparison of one mode with eager, so that it holds for all of them together.
CONFIDENCE = 0.99


@dataclass(frozen=True)
class ModeVerdict:
    """`equals` could not be told from `mode`. `break_even_calls` is after how many calls the time
    for compiling is earned back, None where it never is or there is nothing to earn;
    `warm_break_even_calls` is the same for a process that finds the caches filled. `sure` is False
    where the trial ended before it was decided."""

    mode: str
    equals: tuple[str, ...]
    speedup: float | None
    break_even_calls: int | None
    sure: bool
    text: str
    warm_break_even_calls: int | None = None


@dataclass(frozen=True)
class TrialOfModes:
    """`missing` are modes that were asked for, and that an interrupted trial did not come to."""

    modes: tuple[ModeTrial, ...]
    verdict: ModeVerdict | None
    source: str = "tuned"
    interrupted: bool = False
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def trial_of_modes(
    trials: Iterable[Trial], order: Sequence[str], result: Result | None
) -> TrialOfModes:
    """`result` is None where the trial was interrupted before anything could be chosen. Where only
    eager was timed, because nothing else was asked for or Ctrl-C came first, there is nothing to
    recommend."""
    by_mode = {str(trial.config["mode"]): trial for trial in trials}
    modes = side_by_side([mode_trial(name, by_mode[name]) for name in order if name in by_mode])
    missing = tuple(name for name in order if name not in by_mode)
    if result is None:
        return TrialOfModes(modes, None, interrupted=True, missing=missing)
    modes = tuple(_with_duel(one, result) for one in modes)
    timed = {one.mode: one for one in modes}
    tried = len(timed) > 1 or not result.interrupted
    verdict = _verdict(timed, result) if len(order) > 1 and tried else None
    missing = missing if result.interrupted else ()
    return TrialOfModes(modes, verdict, result.source, result.interrupted, missing)


def side_by_side(modes: Sequence[ModeTrial]) -> tuple[ModeTrial, ...]:
    """With the times of a call as they were in the rounds: eager's median over all of them, and for
    a mode that divided by how many times as fast it was there. By themselves they were timed at
    different moments, between which the pace of the machine may have changed."""
    eager = [ns for one in modes for ns, _ in one.rounds]
    if not eager:
        return tuple(modes)
    base = median(eager)

    def placed(one: ModeTrial) -> ModeTrial:
        if one.mode == EAGER:
            return replace(one, median_ns=base, interval_ns=median_interval(eager, CONFIDENCE))
        if one.beside_eager is None:
            return one
        low, mid, high = one.beside_eager
        return replace(one, median_ns=base / mid, interval_ns=(base / high, base / low))

    return tuple(placed(one) for one in modes)


def _with_duel(one: ModeTrial, result: Result) -> ModeTrial:
    """Trials of an older whet have no rounds; the winner's duel with eager stands in for them."""
    shown, winner = result.paired_speedup, str(result.config["mode"])
    if one.beside_eager is not None or shown is None or one.mode != winner or winner == EAGER:
        return one
    return replace(one, beside_eager=(shown, shown, shown))


def _verdict(modes: dict[str, ModeTrial], result: Result) -> ModeVerdict:
    """A mode is recommended only where its own rounds with eager show that it is faster. Which of
    those, the race and the duel say, where they came so far."""
    shown = [one for one in modes.values() if _shown_faster(one)]
    faster = {one.mode: one for one in shown if not _contradicting(one, modes)}
    best = str(result.config["mode"])
    mode, equals = EAGER, tuple(one.mode for one in modes.values() if _undecided(one))
    if faster:
        tied = [str(config["mode"]) for config in result.equals]
        if best not in faster or result.interrupted:
            best = best if best in faster else max(faster.values(), key=_times).mode
            tied = _near(faster[best], faster.values())
        mode = _simplest(_soonest(best, tied, faster), faster)
        same = (one.mode for one in _alike(faster[mode], modes))
        found = dict.fromkeys((best, *tied, *same))
        equals = tuple(one for one in found if one not in (mode, EAGER))
    calls = break_even(modes.get(EAGER), modes[mode]) if mode in modes else None
    warm = warm_break_even(modes.get(EAGER), modes[mode]) if mode in modes else None
    speedup = _times(faster[mode]) if mode in faster else 1.0
    said = _text(mode, equals, speedup, (calls, warm), modes)
    return ModeVerdict(mode, equals, speedup, calls, not result.interrupted, said, warm)


def _times(one: ModeTrial) -> float:
    return 0.0 if one.beside_eager is None else one.beside_eager[1]


def _shown_faster(one: ModeTrial) -> bool:
    return one.beside_eager is not None and one.beside_eager[0] > 1


def _undecided(one: ModeTrial) -> bool:
    return one.beside_eager is not None and one.beside_eager[0] <= 1 <= one.beside_eager[2]


def _alike(one: ModeTrial, modes: dict[str, ModeTrial]) -> list[ModeTrial]:
    """The other modes with the same generated code."""
    first = one.same_as or one.mode
    return [
        other
        for other in modes.values()
        if other is not one and first in (other.mode, other.same_as)
    ]


def _contradicting(one: ModeTrial, modes: dict[str, ModeTrial]) -> list[ModeTrial]:
    """Those with its code that were slower than eager: processes then differ by more than code."""
    alike = (other for other in _alike(one, modes) if other.beside_eager is not None)
    return [other for other in alike if _times(other) < 1]


def _near(best: ModeTrial, others: Iterable[ModeTrial]) -> list[str]:
    """Whose comparison with eager leaves open whether it is as fast as the best."""
    low = best.beside_eager[0] if best.beside_eager else math.inf
    return [
        one.mode for one in others if one is not best and (one.beside_eager or (0,) * 3)[2] >= low
    ]


def _soonest(best: str, tied: Sequence[str], modes: dict[str, ModeTrial]) -> str:
    """Of those as good as the best, the one that compiles soonest."""
    limit = _times(modes[best]) * (1 - AS_GOOD_WITHIN)
    good = [one for one in tied if one in modes and _times(modes[one]) >= limit]
    return min([best, *good], key=lambda one: modes[one].first_call_s or math.inf)


def _simplest(mode: str, modes: dict[str, ModeTrial]) -> str:
    """The first mode with the same program: what their timings differ by is noise."""
    first = modes[mode].same_as
    return first if first in modes else mode


def break_even(eager: ModeTrial | None, mode: ModeTrial) -> int | None:
    """The number of calls from which on compiling has cost less than it saved."""
    if eager is None or eager.median_ns is None or mode.median_ns is None:
        return None
    saved_s = (eager.median_ns - mode.median_ns) / 1e9
    if saved_s <= 0 or mode.first_call_s is None or eager.first_call_s is None:
        return None
    spent_s = mode.first_call_s + (mode.recording_s or 0.0) - eager.first_call_s
    return max(1, math.ceil(spent_s / saved_s))


def warm_break_even(eager: ModeTrial | None, mode: ModeTrial) -> int | None:
    if mode.warm is None:
        return None
    return break_even(eager, replace(mode, first_call_s=mode.warm.first_call_s))


def misread_ns(mode: ModeTrial) -> float | None:
    """What a loop of 50 calls after one warm-up call would read, with the recording in it; None
    where that is about right."""
    if not mode.median_ns or not mode.recording_s:
        return None
    read = mode.median_ns + mode.recording_s * 1e9 / TIMED_BY_HAND
    return read if read > MISLEADING_ABOVE * mode.median_ns else None


def _text(
    mode: str,
    equals: Sequence[str],
    speedup: float | None,
    calls: tuple[int | None, int | None],
    modes: dict[str, ModeTrial],
) -> str:
    if mode == EAGER:
        return f"Don't compile this model: {_why_eager(equals, modes)}."
    cold, warm = calls
    said = f"Use {variant(mode).call}"
    if speedup:
        said += f": {speedup:.2f} times as fast as eager"
    if cold is not None:
        said += f"; compiling pays from call {cold:,} on"
    if warm is not None:
        said += f" ({warm:,} with warm caches)"
    same = [one for one in equals if one in modes and modes[one].same_as == mode]
    others = [one for one in equals if one not in same]
    if same:
        run = "runs" if len(same) == 1 else "run"
        said += f". {', '.join(same)} {run} the same generated code"
    if others:
        said += f". {', '.join(others)} could not be told from it"
    return said + "."


def _why_eager(equals: Sequence[str], modes: dict[str, ModeTrial]) -> str:
    compiled = [one for one in modes.values() if one.mode != EAGER and one.median_ns]
    eager = modes.get(EAGER)
    if not compiled:
        return "every mode that was tried fails on it"
    for one in compiled:
        against = _contradicting(one, modes)
        if _shown_faster(one) and against:
            return (
                f"{one.mode} was {_times(one):.2f} times as fast as eager and {against[0].mode}, "
                f"with the same generated code, {_times(against[0]):.2f} times, so that the gain "
                "is noise"
            )
    if equals or eager is None or not eager.median_ns:
        return "no mode is measurably faster than eager"
    best = min(compiled, key=lambda one: one.median_ns or math.inf)
    slower = (best.median_ns or 0.0) / eager.median_ns - 1
    if slower <= 0:
        return "no mode is measurably faster than eager"
    if slower >= 1:
        return f"the fastest mode ({best.mode}) takes {slower + 1:.1f} times as long as eager"
    return f"the fastest mode ({best.mode}) is {100 * slower:.0f} % slower than eager"


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

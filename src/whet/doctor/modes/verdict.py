"""From the trials of all modes to one recommendation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from whet.core.run import Result
from whet.core.trial import Trial
from whet.doctor.modes.mode_trial import ModeTrial, mode_trial
from whet.doctor.modes.variants import EAGER, variant

# Among modes that could not be told apart, one that compiles sooner may be so much slower.
AS_GOOD_WITHIN = 0.01

# What a trial that was cut short cannot tell: each mode was timed on its own, not side by side.
UNDECIDED_WITHIN = 0.03

# What a benchmark by hand often does after a single warm-up call.
TIMED_BY_HAND = 50
MISLEADING_ABOVE = 1.2


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
    modes = tuple(mode_trial(name, by_mode[name]) for name in order if name in by_mode)
    missing = tuple(name for name in order if name not in by_mode)
    if result is None:
        return TrialOfModes(modes, None, interrupted=True, missing=missing)
    timed = {one.mode: one for one in modes}
    tried = len(timed) > 1 or not result.interrupted
    verdict = _verdict(timed, result) if len(order) > 1 and tried else None
    missing = missing if result.interrupted else ()
    return TrialOfModes(modes, verdict, result.source, result.interrupted, missing)


def _verdict(modes: dict[str, ModeTrial], result: Result) -> ModeVerdict:
    best = str(result.config["mode"])
    tied = tuple(str(config["mode"]) for config in result.equals)
    if result.interrupted:
        tied = tuple(dict.fromkeys((*tied, *_near(best, modes))))
    mode = best if best == EAGER else _soonest(best, tied, modes)
    mode = _simplest(mode, modes)
    same = tuple(one.mode for one in modes.values() if one.same_as == mode)
    equals = tuple(one for one in dict.fromkeys((best, *tied, *same)) if one != mode)
    speedup = result.speedup if mode == best else _speedup(mode, modes)
    calls = break_even(modes.get(EAGER), modes[mode]) if mode in modes else None
    warm = warm_break_even(modes.get(EAGER), modes[mode]) if mode in modes else None
    said = _text(mode, equals, speedup, (calls, warm), modes)
    return ModeVerdict(mode, equals, speedup, calls, not result.interrupted, said, warm)


def _near(best: str, modes: dict[str, ModeTrial]) -> list[str]:
    limit = (modes[best].median_ns or 0.0) * (1 + UNDECIDED_WITHIN)
    others = (one for one in modes.values() if one.mode != best)
    return [one.mode for one in others if (one.median_ns or math.inf) <= limit]


def _soonest(best: str, tied: Sequence[str], modes: dict[str, ModeTrial]) -> str:
    """Of those as good as the best, the one that compiles soonest; eager if it is among them."""
    if EAGER in tied:
        return EAGER
    limit = (modes[best].median_ns or 0.0) * (1 + AS_GOOD_WITHIN)
    good = [one for one in tied if one in modes and (modes[one].median_ns or math.inf) <= limit]
    return min([best, *good], key=lambda one: modes[one].first_call_s or math.inf)


def _simplest(mode: str, modes: dict[str, ModeTrial]) -> str:
    """The first mode with the same program: what their timings differ by is noise."""
    first = modes[mode].same_as if mode in modes else ""
    return first if first in modes and modes[first].median_ns else mode


def _speedup(mode: str, modes: dict[str, ModeTrial]) -> float | None:
    eager, chosen = modes.get(EAGER), modes.get(mode)
    if eager is None or chosen is None or not eager.median_ns or not chosen.median_ns:
        return None
    return eager.median_ns / chosen.median_ns


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
        said += f". {', '.join(same)} {_run(same)} the same generated code"
    if others:
        said += f". {', '.join(others)} could not be told from it"
    return said + "."


def _run(names: Sequence[str]) -> str:
    return "runs" if len(names) == 1 else "run"


def _why_eager(equals: Sequence[str], modes: dict[str, ModeTrial]) -> str:
    compiled = [one for one in modes.values() if one.mode != EAGER and one.median_ns]
    eager = modes.get(EAGER)
    if not compiled:
        return "no mode could be measured"
    if equals or eager is None or not eager.median_ns:
        return "no mode is measurably faster than eager"
    best = min(compiled, key=lambda one: one.median_ns or math.inf)
    slower = (best.median_ns or 0.0) / eager.median_ns - 1
    if slower <= 0:
        return "no mode is measurably faster than eager"
    if slower >= 1:
        return f"the fastest mode ({best.mode}) takes {slower + 1:.1f} times as long as eager"
    return f"the fastest mode ({best.mode}) is {100 * slower:.0f} % slower than eager"

"""Timings of two occasions: how long one is in terms of the other, and how sure that is.

Side by side is better (`measure.stats.paired_ratio`), but what was measured last month is not there
to be measured beside.
"""

from __future__ import annotations

import math

from whet.core.timing import CONFIDENCE, Timing
from whet.measure.racing.policy import RacePolicy
from whet.measure.racing.stats import Noise, Ratio, interval

_POLICY = RacePolicy()


def why_not_comparable(one: Timing | None, other: Timing | None) -> str:
    """Empty where the two may be compared."""
    if one is None or other is None or not (_measured(one) and _measured(other)):
        return "one of them was never timed"
    if (one.foreign is None) != (other.foreign is None):
        return "one was timed by a user's own benchmark"
    if one.method != other.method:
        ways = " and ".join(f"{each.timer} with L2 {each.l2}" for each in (one, other))
        return f"they were timed in different ways, {ways}"
    if one.host_bound != other.host_bound:
        return "one was timed one launch at a time, since the host was too slow"
    return ""


def ratio_between(later: Timing, earlier: Timing, confidence: float = CONFIDENCE) -> Ratio:
    """`later / earlier` of two comparable timings, whose noises are independent.

    The interval joins those of the two medians as squares of their logarithms do. It knows nothing
    of what changes from one occasion to the next for all kernels alike: clocks, temperature,
    neighbours. `RacePolicy.rerun_noise` is what that usually comes to.
    """
    low, mid, high = _logs(later, confidence)
    other_low, other_mid, other_high = _logs(earlier, confidence)
    ratio = mid - other_mid
    return Ratio(
        low=math.exp(ratio - math.hypot(mid - low, other_high - other_mid)),
        mid=math.exp(ratio),
        high=math.exp(ratio + math.hypot(high - mid, other_mid - other_low)),
    )


def _measured(timing: Timing) -> bool:
    return bool(timing.samples) or timing.foreign is not None


def _logs(timing: Timing, confidence: float) -> Ratio:
    """The median and the ends of its interval. Few samples say little about their own noise, and
    are not believed to be better than one visit's."""
    middle = math.log(timing.median_ns)
    if timing.foreign is not None:
        ends: tuple[float, float] | None = (timing.foreign.low_ns, timing.foreign.high_ns)
    else:
        noise = Noise(_POLICY.visit_noise)
        noise.add([math.log(sample) for sample in timing.samples])
        ends = interval(timing.samples, confidence, noise.sigma)
    assert ends is not None
    return Ratio(min(middle, math.log(ends[0])), middle, max(middle, math.log(ends[1])))

"""What two stores know of the same workloads, side by side."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Literal

from whet.core.config import Config
from whet.core.timing import CONFIDENCE, Timing
from whet.core.workload import Workload
from whet.measure.racing.race import RacePolicy
from whet.measure.racing.stats import Noise, Ratio, interval
from whet.store import Store, WorkloadSummary
from whet.store.matching import differences

Kind = Literal["other", "only_a", "only_b", "same"]

# What one config's timings of two occasions differ by anyway.
ANYWAY = RacePolicy().rerun_noise


@dataclass(frozen=True)
class Difference:
    """A workload of two stores, of which one may lack it.

    `differs` names what is not the same about the two (`fingerprint`, `device`, `toolchain`).
    `ratio` is B's time over A's, None where `why` says why they cannot be compared.
    """

    a: WorkloadSummary | None
    b: WorkloadSummary | None
    differs: tuple[str, ...] = ()
    ratio: Ratio | None = None
    why: str = ""

    @property
    def kind(self) -> Kind:
        if self.a is None:
            return "only_b"
        if self.b is None:
            return "only_a"
        return "same" if _pick(self.a) == _pick(self.b) else "other"

    @property
    def faster(self) -> Literal["a", "b"] | None:
        """Whose pick the samples call faster, by more than timings of two occasions differ
        anyway; None where they cannot tell."""
        if self.ratio is None:
            return None
        if self.ratio.low > 1 + ANYWAY:
            return "a"
        return "b" if self.ratio.high < 1 / (1 + ANYWAY) else None


def compare_stores(a: Store, b: Store, kernel: str | None = None) -> list[Difference]:
    """Every workload of either, other picks first.

    Workloads of one id belong together. What is left is paired by kernel and key, those first that
    share device, fingerprint and toolchain, in this order.
    """
    of_a = {one.workload.id: one for one in a.workloads(kernel)}
    of_b = {one.workload.id: one for one in b.workloads(kernel)}
    found = [_pair(of_a.pop(id), of_b.pop(id)) for id in [*of_a] if id in of_b]
    by_problem: dict[str, list[WorkloadSummary]] = {}
    for other in of_b.values():
        by_problem.setdefault(_problem(other.workload), []).append(other)
    for one in of_a.values():
        candidates = by_problem.get(_problem(one.workload))
        if candidates:
            nearest = min(candidates, key=lambda other: _distance(one.workload, other.workload))
            candidates.remove(nearest)
            found.append(_pair(one, nearest))
        else:
            found.append(Difference(one, None))
    found += [Difference(None, other) for several in by_problem.values() for other in several]
    return sorted(found, key=_order)


def _pair(a: WorkloadSummary, b: WorkloadSummary) -> Difference:
    differs = differences(a.workload, b.workload)
    of_a, of_b = _timing(a), _timing(b)
    why = why_not_comparable(of_a, of_b)
    ratio = None if why or of_a is None or of_b is None else ratio_between(of_b, of_a)
    return Difference(a, b, differs, ratio, why)


def _pick(one: WorkloadSummary) -> Config | None:
    return one.best_config


def _timing(one: WorkloadSummary) -> Timing | None:
    return None if one.best is None else one.best.timing


def _problem(workload: Workload) -> str:
    return json.dumps([workload.kernel, dict(workload.key)], sort_keys=True)


def _distance(one: Workload, other: Workload) -> tuple[bool, ...]:
    differs = differences(one, other)
    return tuple(part in differs for part in ("device", "fingerprint", "toolchain"))


_KINDS: tuple[Kind, ...] = ("other", "only_a", "only_b", "same")


def _order(one: Difference) -> tuple[int, str, str]:
    known = one.a or one.b
    assert known is not None
    return _KINDS.index(one.kind), _problem(known.workload), known.workload.id


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

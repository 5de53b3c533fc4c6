"""What two stores know of the same workloads, side by side."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass, replace
from typing import Literal

from whet.core.config import Config
from whet.core.timing import CONFIDENCE, Timing, median_interval
from whet.core.workload import Workload
from whet.measure.racing.race import RacePolicy
from whet.measure.racing.stats import Noise, Ratio, interval
from whet.store import Store, WorkloadSummary
from whet.store.matching import differences

Kind = Literal["other", "only_a", "only_b", "same"]

# What one config's timings of two occasions differ by anyway.
ANYWAY = RacePolicy().rerun_noise


@dataclass(frozen=True)
class Matched:
    """Configs that were measured on both sides: the median of B's times over A's with its interval,
    and how many of them are slower or faster by more than timings of two occasions differ."""

    configs: int
    ratio: Ratio
    slower: int
    faster: int


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
    matched: Matched | None = None

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
        return None if self.ratio is None else _faster(self.ratio)


def compare_stores(
    a: Store, b: Store, kernel: str | None = None, *, only_a: str = "", only_b: str = ""
) -> list[Difference]:
    """Every workload of either, those that became slower first, then other picks.

    Workloads of one id belong together. What is left is paired by kernel and key, those first that
    share device, fingerprint and toolchain, in this order. `only_a` and `only_b` are part of a
    device's name, or begin a fingerprint or a workload's id.
    """

    def pair(one: WorkloadSummary, other: WorkloadSummary) -> Difference:
        return replace(_pair(one, other), matched=_matched(a, b, one.workload, other.workload))

    of_a = {one.workload.id: one for one in a.workloads(kernel) if _goes_by(one, only_a)}
    of_b = {one.workload.id: one for one in b.workloads(kernel) if _goes_by(one, only_b)}
    found = [pair(of_a.pop(id), of_b.pop(id)) for id in [*of_a] if id in of_b]
    by_problem: dict[str, list[WorkloadSummary]] = {}
    for other in of_b.values():
        by_problem.setdefault(_problem(other.workload), []).append(other)
    for one in of_a.values():
        candidates = by_problem.get(_problem(one.workload))
        if candidates:
            nearest = min(candidates, key=lambda other: _distance(one.workload, other.workload))
            candidates.remove(nearest)
            found.append(pair(one, nearest))
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


def _goes_by(one: WorkloadSummary, text: str) -> bool:
    of = one.workload
    named = text.lower() in of.device.name.lower()
    return named or of.fingerprint.startswith(text) or of.id.startswith(text)


def _faster(ratio: Ratio) -> Literal["a", "b"] | None:
    if ratio.low > 1 + ANYWAY:
        return "a"
    return "b" if ratio.high < 1 / (1 + ANYWAY) else None


def _matched(a: Store, b: Store, of_a: Workload, of_b: Workload) -> Matched | None:
    theirs = {one.config: one.timing for one in b.trials(of_b.id) if one.status.measured}
    pairs = [
        (one.timing, theirs[one.config])
        for one in a.trials(of_a.id)
        if one.status.measured and one.config in theirs
    ]
    ratios = [
        ratio_between(later, earlier)
        for earlier, later in pairs
        if earlier is not None and later is not None and not why_not_comparable(earlier, later)
    ]
    if not ratios:
        return None
    mids = [one.mid for one in ratios]
    middle = statistics.median(mids)
    low, high = median_interval(mids) or (min(mids), max(mids))
    said = [_faster(one) for one in ratios]
    return Matched(len(mids), Ratio(low, middle, high), said.count("a"), said.count("b"))


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


def _order(one: Difference) -> tuple[float, int, str, str]:
    known = one.a or one.b
    assert known is not None
    slower = one.ratio.mid if one.ratio is not None and one.faster == "a" else 0.0
    return -slower, _KINDS.index(one.kind), _problem(known.workload), known.workload.id


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

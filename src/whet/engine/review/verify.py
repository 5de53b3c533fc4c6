"""`verify`: measures a stored pick again, and says whether it still holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import CONFIDENCE, Timing
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.engine.review.beside import Beside, measure_beside
from whet.engine.review.occasions import ratio_between, why_not_comparable
from whet.engine.settings import Settings, resolve_settings
from whet.engine.target import Target
from whet.measure.racing.policy import DuelPolicy
from whet.measure.racing.stats import Ratio, paired_ratio
from whet.store import Store
from whet.store.matching import differences

Verdict = Literal["ok", "slower", "undecided", "cannot be built", "fails"]

# Less than that, two occasions differ by anyway.
FAIL_OVER = 0.03


@dataclass(frozen=True)
class Verification:
    """A stored pick, measured again on this machine.

    `pick` is the trial that was stored, for `stored`, which `differs` from the `workload` of now in
    its fingerprint, driver or toolchain, or in nothing. `ratio` is the time of now over the stored
    one; `speedup` is over the author's `first` config, measured side by side; `pace` is the first
    config's own time of now over its stored one. What could not be measured or compared is None,
    and `reason` says why.
    """

    workload: Workload
    stored: Workload
    pick: Trial
    first: Config | None
    verdict: Verdict
    reason: str = ""
    differs: tuple[str, ...] = ()
    now: Timing | None = None
    first_now: Timing | None = None
    ratio: Ratio | None = None
    speedup: Ratio | None = None
    pace: Ratio | None = None
    trials: tuple[Trial, ...] = field(default=(), repr=False)

    @property
    def failed(self) -> bool:
        return self.verdict in ("slower", "cannot be built", "fails")

    @property
    def beats_first(self) -> bool | None:
        """None where the pick is the first config, or the samples cannot tell."""
        if self.speedup is None or self.speedup.low <= 1 <= self.speedup.high:
            return None
        return self.speedup.low > 1


def verify(
    target: Target,
    store: Store,
    *,
    fail_over: float = FAIL_OVER,
    settings: Settings | None = None,
    policy: DuelPolicy | None = None,
    record: bool = False,
) -> Verification | None:
    """Whether the stored pick is still as fast as it was, and faster than the first config.

    It is `slower` where it takes more than `1 + fail_over` times as long with the confidence of
    95 %, and `undecided` where the samples allow for either; what changes from one occasion to the
    next for all kernels alike is what `fail_over` has to allow for. Where this very workload is
    not stored, its latest result on this device for the same key is verified, such as that of an
    older toolchain; None where there is none. Nothing is written, unless `record` asks for it, but
    the mark that precedes a config's first launch in this process, and the workload it is of.
    """
    workload = target.workload()
    found = _stored(store, workload)
    if found is None:
        return None
    stored, pick = found
    blank = Verification(
        workload=workload,
        stored=stored,
        pick=pick,
        first=target.space.first,
        verdict="undecided",
        differs=differences(stored, workload),
    )
    if pick.config not in target.space:
        gone = "the tunable no longer has this config"
        return replace(blank, verdict="cannot be built", reason=gone)
    configs = dict.fromkeys(c for c in (pick.config, blank.first) if c is not None)
    beside = measure_beside(
        target,
        list(configs),
        store,
        settings or resolve_settings().settings,
        policy or DuelPolicy(),
    )
    done = _judged(blank, beside, fail_over, _level(store, blank))
    if record:
        store.put_workload(workload)
        store.append(done.trials)
    return done


def _stored(store: Store, workload: Workload) -> tuple[Workload, Trial] | None:
    match = store.match(workload)
    best = store.best(workload.id) if match is not None and match.kind == "strict" else None
    if best is not None:
        return workload, best
    for one in store.workloads(workload.kernel):
        alike = one.workload.device, workload.device
        same_device = len({(d.name, d.vendor, d.architecture) for d in alike}) == 1
        if one.best is not None and same_device and one.workload.key == workload.key:
            return one.workload, one.best
    return None


def _level(store: Store, blank: Verification) -> Timing | None:
    """What the first config took when the pick was stored."""
    if blank.first is None or blank.first == blank.pick.config:
        return None
    trial = store.latest(blank.stored.id, blank.first.id)
    return None if trial is None else trial.timing


def _judged(
    blank: Verification, beside: Beside, fail_over: float, level: Timing | None
) -> Verification:
    pick, first = blank.pick.config, blank.first
    failure = beside.failures.get(pick.id)
    now = beside.timings.get(pick.id)
    if failure is not None:
        ran = failure.status in (Status.RUN_ERROR, Status.RUN_TIMEOUT, Status.WRONG_RESULT)
        return replace(
            blank,
            verdict="fails" if ran else "cannot be built",
            reason=f"{failure.status}: {failure.message}",
            trials=(_failed(blank, pick, failure),),
        )
    if beside.lost is not None:
        return replace(blank, verdict="fails", reason=str(beside.lost))
    assert now is not None
    first_now = None if first is None or first == pick else beside.timings.get(first.id)
    done = replace(blank, now=now, first_now=first_now, speedup=_speedup(beside, pick, first))
    if first_now is not None and level is not None and not why_not_comparable(first_now, level):
        done = replace(done, pace=ratio_between(first_now, level))
    done = replace(done, trials=_trials(done, beside))
    why = why_not_comparable(now, blank.pick.timing)
    if why or blank.pick.timing is None:
        return replace(done, reason=f"its times cannot be compared: {why}")
    ratio = ratio_between(now, blank.pick.timing)
    reason = _first_reason(done, beside, fail_over)
    return replace(done, verdict=_verdict(ratio, fail_over), ratio=ratio, reason=reason)


def _verdict(ratio: Ratio, fail_over: float) -> Verdict:
    if ratio.low > 1 + fail_over:
        return "slower"
    return "ok" if ratio.high <= 1 + fail_over else "undecided"


def _first_reason(done: Verification, beside: Beside, fail_over: float) -> str:
    """What the first config has to say: that it fails, or that everything is slower now."""
    failure = None if done.first is None else beside.failures.get(done.first.id)
    if failure is not None:
        return f"the author's first config fails: {failure.message}"
    if done.pace is not None and done.pace.low > 1 + fail_over:
        return f"the author's first config takes {done.pace.mid:.2f}× its stored time as well"
    return ""


def _speedup(beside: Beside, pick: Config, first: Config | None) -> Ratio | None:
    if first is None or first == pick:
        return None
    pairs = [(times[first.id], times[pick.id]) for times in beside.rounds if len(times) == 2]
    if not pairs:
        return None
    of_first, of_pick = zip(*pairs, strict=True)
    return paired_ratio(of_first, of_pick, CONFIDENCE)


def _trials(done: Verification, beside: Beside) -> tuple[Trial, ...]:
    lost = Status.OUTRACED if done.beats_first else Status.OK
    wanted: Sequence[tuple[Config | None, Timing | None, Status]] = (
        (done.pick.config, done.now, Status.OK),
        (done.first, done.first_now, lost),
    )
    return tuple(
        Trial(
            workload_id=done.workload.id,
            config=config,
            status=status,
            timing=timing,
            cost=beside.cost(config),
            facts=beside.facts.get(config.id, FrozenMap()),
            created=time.time(),
        )
        for config, timing, status in wanted
        if config is not None and timing is not None
    )


def _failed(blank: Verification, config: Config, failure: ConfigFailure) -> Trial:
    return Trial(
        workload_id=blank.workload.id,
        config=config,
        status=failure.status,
        error=failure.message,
        limit=failure.limit,
        created=time.time(),
    )

"""`verify`: measures a stored pick again, and says whether it still holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from whet.builds.builder import Builder
from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.process import memory_info
from whet.core.status import Status
from whet.core.timing import CONFIDENCE, Timing
from whet.core.trial import Cost, Trial
from whet.core.workload import Workload
from whet.engine.crash_report import CrashReport, how_it_ended, noticed
from whet.engine.guard import DeviceLostError, LaunchJournalOutside, proven
from whet.engine.review.difference import ratio_between, why_not_comparable
from whet.engine.settings import Settings, resolve_settings
from whet.engine.target import BenchLimits, Target
from whet.measure.bench.protocol import Bench, Visit
from whet.measure.racing.duel import DuelPolicy
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


# Taken before the rounds, to load, check and warm a config; they count for nothing.
FIRST_SAMPLES = 2


@dataclass
class Beside:
    """By config id. `rounds` are nanoseconds of those that took part in each; `lost` is set where
    one of them took the device from this process, which ended it for all."""

    artifacts: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, FrozenMap[Value]] = field(default_factory=dict)
    timings: dict[str, Timing] = field(default_factory=dict)
    failures: dict[str, ConfigFailure] = field(default_factory=dict)
    rounds: list[dict[str, float]] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)
    lost: DeviceLostError | None = None

    def cost(self, config: Config) -> Cost:
        return self.costs.get(config.id, Cost())

    def spend(self, config: Config, seconds: FrozenMap[float]) -> None:
        self.costs[config.id] = self.cost(config) + Cost(seconds)


def measure_beside(
    target: Target,
    configs: Sequence[Config],
    store: Store,
    settings: Settings,
    policy: DuelPolicy,
) -> Beside:
    """Builds, checks and measures them in turns, as many as a duel may take.

    How many is settled beforehand, not by how the times look: else chance would have a say in
    when to stop. Who fails is in `failures`, with whatever was taken of it before. Another process
    is asked for where one that ran such a config has died, and where the store cannot take a mark
    of one that has never run; without another process, whoever may have ended that one fails.
    """
    beside = Beside()
    _build(beside, target, configs, settings)
    workload = target.workload()
    died = noticed(store, workload.id)
    untold = store.read_only and not all(proven(store, workload.id, one) for one in configs)
    limits = BenchLimits(
        settings.memory_bytes or memory_info("MemAvailable"),
        settings.isolate or bool(died.open) or untold,
        settings.device_memory_bytes,
        lambda: settings.first_call_s,
    )
    with closing(target.bench(limits)) as bench:
        marking = LaunchJournalOutside(store, workload, bench)
        marking.refuse_if_lost()
        if bench.in_process:
            _blame(beside, died)
        try:
            for config in configs:
                if config.id not in beside.failures:
                    _look(beside, bench, marking, config, settings.run_limit_s)
            _take_rounds(beside, bench, marking, configs, policy, settings.run_limit_s)
        except DeviceLostError as lost:
            beside.lost = lost
    return beside


def _blame(beside: Beside, died: CrashReport) -> None:
    for mark in died.open:
        for id in died.suspects.intersection(config.id for config in mark.configs):
            failure = ConfigFailure(Status.RUN_ERROR, how_it_ended(mark))
            beside.failures.setdefault(id, failure)


def _build(beside: Beside, target: Target, configs: Sequence[Config], settings: Settings) -> None:
    limit = settings.build_limit_s
    with Builder(jobs=settings.jobs, mode=target.build_mode, limit_s=limit) as builder:
        for config in configs:
            refusal = target.reject(config)
            if refusal is not None:
                beside.failures[config.id] = ConfigFailure(Status.CONSTRAINT, refusal)
                continue
            job = target.job(config)
            beside.artifacts[config.id] = None
            if job is not None:
                builder.submit(config, job, limit_s=limit)
        while builder.pending:
            for result in builder.ready():
                id = result.config.id
                beside.spend(result.config, FrozenMap({"build": result.seconds}))
                if result.status is Status.OK:
                    beside.artifacts[id], beside.facts[id] = result.artifact, result.facts
                else:
                    beside.failures[id] = ConfigFailure(result.status, result.error, result.limit)


def _look(
    beside: Beside, bench: Bench, marking: LaunchJournalOutside, config: Config, limit_s: float
) -> None:
    artifact = beside.artifacts[config.id]
    try:
        with marking.around([config], first=True):
            [look] = bench.measure(Visit(((config, artifact),), FIRST_SAMPLES, True, limit_s))
    except DeviceLostError as lost:
        if isinstance(lost.__cause__, ConfigFailure):
            beside.failures[config.id] = lost.__cause__
        raise
    except ConfigFailure as failure:
        look = failure
    if isinstance(look, ConfigFailure):
        beside.failures[config.id] = look
        return
    beside.spend(config, look.seconds)
    known = beside.facts.get(config.id, FrozenMap())
    beside.facts[config.id] = FrozenMap({**known, **look.facts})


def _take_rounds(
    beside: Beside,
    bench: Bench,
    marking: LaunchJournalOutside,
    configs: Sequence[Config],
    policy: DuelPolicy,
    limit_s: float,
) -> None:
    start = time.perf_counter()
    for turn in range(policy.max_rounds):
        standing = [config for config in configs if config.id not in beside.failures]
        spent = time.perf_counter() - start
        late = policy.max_seconds is not None and spent > policy.max_seconds
        if not standing or (late and turn >= policy.first_check):
            return
        order = standing[::-1] if turn % 2 else standing
        with marking.around(order, first=False):
            built = tuple((config, beside.artifacts[config.id]) for config in order)
            answers = bench.measure(Visit(built, 1, limit_s=limit_s))
        beside.rounds.append({})
        for config, one in zip(order, answers, strict=True):
            if isinstance(one, ConfigFailure):
                beside.failures[config.id] = one
                continue
            beside.spend(config, one.seconds)
            before, now = beside.timings.get(config.id), one.reading.timing()
            beside.timings[config.id] = now if before is None else before.extended(now)
            beside.rounds[-1][config.id] = now.median_ns

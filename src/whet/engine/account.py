"""`Account`: where the time of a tuning went, what it saved, and when it has paid for itself.

What a tuning did not have to do follows from the trials of those who did it and those who did not.
What cannot be known is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.run import Run
from whet.core.status import Status
from whet.core.timing import median
from whet.core.trial import WALL_PHASES, Cost, Trial
from whet.core.workload import Workload

# What a config would have got without a race.
SAMPLES_EACH = 10

# What `triton.autotune` spends on measuring one config, from measurements on an H200 with Triton
# 3.6 (benchmarks/README.md): 115 to 131 ms whatever the kernel's speed, since it fills a fixed
# time; and at least 8 launches, before each of which it clears 256 MB.
STOCK_BENCHMARK_S = 0.12
STOCK_LAUNCHES = 8
STOCK_CLEARING_S = 0.07e-3

_NEVER_BUILT = (Status.CONSTRAINT, Status.BUILD_ERROR, Status.BUILD_TIMEOUT)


@dataclass(frozen=True)
class Racing:
    """Seconds the measured kernels ran for, and would have for `SAMPLES_EACH` samples each."""

    configs: int
    taken_s: float
    full_s: float

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> Racing | None:
        """None where nothing was timed by a timer of ours. A twin that took no samples of its own
        counts on neither side."""
        taken, full, configs = 0.0, 0.0, 0
        for trial in trials:
            timing = trial.timing
            if not trial.status.measured or timing is None or not timing.samples:
                continue
            if spent(trial, "measure") <= 0.0:
                continue
            configs += 1
            sampled_s = sum(timing.samples) * timing.loops / 1e9
            taken += trial.cost.work.get("measure.kernel", sampled_s)
            full += SAMPLES_EACH * timing.median_ns * timing.loops / 1e9
        return cls(configs, taken, full) if configs else None

    def to_json(self) -> dict[str, Any]:
        return {
            "configs": self.configs,
            "kernel_s": self.taken_s,
            "ten_samples_each_s": self.full_s,
            "saved_s": self.full_s - self.taken_s,
        }


@dataclass(frozen=True)
class Refusal:
    """Configs that were refused before the costly stage of their build, for `spent_s` in all.

    `saved_s` takes each for one build of `typical_s`, the median of the others. That is a lower
    bound: what is refused is larger than what is not, and keys need not share their binaries.
    """

    configs: int
    spent_s: float
    typical_s: float | None

    @classmethod
    def of(cls, trials: Iterable[Trial], builds: BuildTimes) -> Refusal:
        refused = [trial for trial in trials if builds.is_early_refusal(trial)]
        spent_s = sum((spent(trial, "build") for trial in refused), start=0.0)
        return cls(len({trial.config.id for trial in refused}), spent_s, builds.typical_s)

    @property
    def saved_s(self) -> float | None:
        if self.typical_s is None:
            return None
        return max(0.0, self.configs * self.typical_s - self.spent_s)

    def to_json(self) -> dict[str, Any]:
        return {
            "configs": self.configs,
            "spent_s": self.spent_s,
            "full_build_s": self.typical_s,
            "saved_at_least_s": self.saved_s,
            "estimated": True,
        }


@dataclass(frozen=True)
class Cutting:
    """Builds and runs that were ended at a limit, and what they had taken by then."""

    builds: int
    build_s: float
    runs: int
    run_s: float

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> Cutting:
        cut = list(trials)
        builds = [trial for trial in cut if trial.status is Status.BUILD_TIMEOUT]
        runs = [trial for trial in cut if trial.status is Status.RUN_TIMEOUT]
        return cls(
            builds=len(builds),
            build_s=sum((spent(trial, "build") for trial in builds), start=0.0),
            runs=len(runs),
            run_s=sum((spent(trial, "measure", "first_call") for trial in runs), start=0.0),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "builds": self.builds,
            "build_s": self.build_s,
            "runs": self.runs,
            "run_s": self.run_s,
        }


@dataclass(frozen=True)
class Overlap:
    """What all workers spent on building, and how long anybody had to wait for it."""

    build_s: float
    waiting_s: float

    def to_json(self) -> dict[str, Any]:
        return {"build_s": self.build_s, "waiting_s": self.waiting_s}


@dataclass(frozen=True)
class CacheSavings:
    """What was there already.

    `known` configs had their outcome in the store and had cost `known_s` then; None where some of
    them may lie outside this run's space. `built` ones were measured without the costly stage of
    a build, which is `built_s` in builds of the typical length.
    """

    known: int
    known_s: float | None
    built: int
    built_s: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "known": self.known,
            "known_s": self.known_s,
            "built": self.built,
            "built_s": self.built_s,
            "estimated": True,
        }


@dataclass(frozen=True)
class Stock:
    """What `triton.autotune` would have spent: every build after the other, every benchmark."""

    build_s: float
    benchmarks: int
    benchmark_s: float

    @classmethod
    def of(cls, trials: Iterable[Trial], builds: BuildTimes) -> Stock:
        """A refused config counts as one build of the typical length, for stock finds out after
        building and then has the binary; what was cut counts as far as it got."""
        build_s, benchmark_s, benchmarks = 0.0, 0.0, 0
        refused: dict[str, float] = {}
        for trial in trials:
            own = spent(trial, "build")
            if builds.is_early_refusal(trial):
                refused[trial.config.id] = max(own, builds.typical_s or 0.0)
            else:
                build_s += own
            if trial.status.measured and trial.median_ns is not None:
                launch_s = trial.median_ns / 1e9 + STOCK_CLEARING_S
                benchmark_s += max(STOCK_BENCHMARK_S, STOCK_LAUNCHES * launch_s)
                benchmarks += 1
        return cls(build_s + sum(refused.values()), benchmarks, benchmark_s)

    @property
    def total_s(self) -> float:
        return self.build_s + self.benchmark_s

    def to_json(self) -> dict[str, Any]:
        return {
            "build_s": self.build_s,
            "benchmarks": self.benchmarks,
            "benchmark_s": self.benchmark_s,
            "total_s": self.total_s,
            "estimated": True,
        }


class BuildTimes:
    """Tells the builds that went all the way from those that did not.

    The costly stage is the one that builds of working configs spent most on: a refusal without
    it came early, and a working config without it was built before.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        totals: dict[str, float] = {}
        for trial in trials:
            if trial.status not in (*_NEVER_BUILT, Status.RESOURCES):
                for stage, seconds in stages(trial.cost).items():
                    totals[stage] = totals.get(stage, 0.0) + seconds
        self._costly = max(totals, key=lambda stage: totals[stage], default=None)
        full = [spent(trial, "build") for trial in trials if self.is_full(trial)]
        self.typical_s = median(full) if full else None

    def is_full(self, trial: Trial) -> bool:
        if trial.status in _NEVER_BUILT or spent(trial, "build") <= 0.0:
            return False
        if self._costly is None:
            return trial.status is not Status.RESOURCES
        return self._costly in stages(trial.cost)

    def is_early_refusal(self, trial: Trial) -> bool:
        if trial.status is Status.CONSTRAINT:
            return True
        if trial.status is not Status.RESOURCES or self._costly is None:
            return False
        return self._costly not in stages(trial.cost) and spent(trial, "load", "measure") == 0.0


def spent(trial: Trial, *phases: str) -> float:
    return sum(trial.cost.work.get(phase, 0.0) for phase in phases)


def stages(cost: Cost) -> dict[str, float]:
    """Seconds by stage of building: `{"llir": 0.6}`."""
    work = cost.work.items()
    return {name.removeprefix("build."): s for name, s in work if name.startswith("build.")}


def already_built(trials: Iterable[Trial], builds: BuildTimes) -> tuple[int, float | None]:
    """How many were measured without a full build, and what that saved, if one was ever made."""
    if builds.typical_s is None:
        return 0, None
    found = [trial for trial in trials if trial.status.measured and not builds.is_full(trial)]
    saved = (max(0.0, builds.typical_s - spent(trial, "build")) for trial in found)
    return len(found), sum(saved, start=0.0)


_MEASURING = ("load", "warmup", "check", "measure")

_WHY_UNKNOWN = {
    "wall": "the run ended before it was recorded",
    "racing": "no config was sampled by whet's own timer",
    "stock": "no config of a Triton kernel was tried",
    "payback": "no run was timed to completion and has a best config",
}


@dataclass(frozen=True)
class Tuning:
    """One run, and every trial that its store has of its workload, as they were appended.

    `first` is the author's first config, None where that is not known.
    """

    run: Run
    trials: tuple[Trial, ...]
    first: Config | None = None

    @cached_property
    def tried(self) -> tuple[Trial, ...]:
        """Each config's outcome in this run; not what the run merely judged anew, without a new
        sample, from an earlier run's trial."""
        before = {t.config.id: t for t in self.trials if t.run_id != self.run.id and self._past(t)}
        mine = {t.config.id: t for t in self.trials if t.run_id == self.run.id}
        return tuple(t for id, t in mine.items() if not _same_work(t, before.get(id)))

    @cached_property
    def known(self) -> tuple[Trial, ...]:
        """What the store could tell when the run began, of configs that it did not try again."""
        tried = {trial.config.id for trial in self.tried}
        others = [t for t in self.trials if t.run_id != self.run.id and self._past(t)]
        latest = {trial.config.id: trial for trial in others}
        return tuple(trial for id, trial in latest.items() if id not in tried)

    @property
    def known_fits(self) -> bool:
        """False where the space is too small for all that is known: then some lies outside."""
        size = self.run.space_size
        return size is None or len(self.known) + len(self.tried) <= size

    @property
    def work(self) -> Cost:
        """The run's own sums; those of a run that was killed are of its trials."""
        recorded = Cost(self.run.cost.work)
        return recorded if recorded.work else sum((trial.cost for trial in self.tried), Cost())

    def median_ns(self, config: Config | None) -> float | None:
        """By this run's own samples, if it has any."""
        found = [t for t in self.trials if t.config == config and t.status.measured]
        own = [trial for trial in found if trial.run_id == self.run.id]
        return (own or found)[-1].median_ns if found else None

    @property
    def earliest(self) -> Config | None:
        """The config that was measured before all others."""
        measured = [trial.config for trial in self.trials if trial.status.measured]
        return measured[0] if measured else None

    def _past(self, trial: Trial) -> bool:
        return trial.created <= self.run.started


@dataclass(frozen=True)
class ConfigCost:
    """What one config took over all keys, in workers' seconds; `stage` is the costliest one of
    its builds, empty where none is known; `first_call_s` is what its first calls took, and
    `measure_s` all the rest."""

    config: Config
    statuses: FrozenMap[int]
    build_s: float
    stage: str
    stage_s: float
    first_call_s: float
    measure_s: float

    @property
    def total_s(self) -> float:
        return self.build_s + self.first_call_s + self.measure_s

    def to_json(self) -> dict[str, Any]:
        return {
            "config": dict(self.config),
            "config_id": self.config.id,
            "statuses": dict(self.statuses),
            "build_s": self.build_s,
            "costliest_stage": self.stage or None,
            "costliest_stage_s": self.stage_s,
            "first_call_s": self.first_call_s,
            "measure_s": self.measure_s,
            "total_s": self.total_s,
        }


@dataclass(frozen=True)
class KeyCost:
    """One workload's part of it. `builds` and `measured` count configs."""

    workload: Workload
    run_id: str
    wall_s: float
    tried: int
    builds: int
    measured: int

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload.to_json(),
            "run": self.run_id,
            "wall_s": self.wall_s,
            "tried": self.tried,
            "builds": self.builds,
            "measured": self.measured,
        }


@dataclass(frozen=True)
class Payback:
    """For one call of every one of `keys` keys: what it takes now, and `gain_ns` less than with
    the author's first config, or where that is not known (`is_first` is False) with the config
    that was measured first."""

    keys: int
    wall_s: float
    best_ns: float
    gain_ns: float
    is_first: bool

    @property
    def calls(self) -> int | None:
        """After so many calls the tuning has paid for itself; None is never."""
        return math.ceil(self.wall_s * 1e9 / self.gain_ns) if self.gain_ns > 0 else None

    @property
    def calls_to_tenth(self) -> int:
        """From so many calls on, the tuning is under 10 % of the time spent on both."""
        return math.ceil(9 * self.wall_s * 1e9 / self.best_ns)

    def to_json(self) -> dict[str, Any]:
        return {
            "keys": self.keys,
            "wall_s": self.wall_s,
            "best_ns": self.best_ns,
            "gain_ns": self.gain_ns,
            "against": "first" if self.is_first else "measured_first",
            "calls": self.calls,
            "calls_to_10_percent": self.calls_to_tenth,
        }


@dataclass(frozen=True)
class Account:
    """Seconds throughout. `wall` sums to the runs' length; `work` adds up what all processes
    spent, a stage (`build.llir`) being part of its phase. `unknown` says of each part that is None
    why it is."""

    keys: tuple[KeyCost, ...]
    configs: tuple[ConfigCost, ...]
    wall: FrozenMap[float]
    work: FrozenMap[float]
    refusal: Refusal
    cutting: Cutting
    cache: CacheSavings
    racing: Racing | None = None
    overlap: Overlap | None = None
    stock: Stock | None = None
    payback: Payback | None = None
    unknown: FrozenMap[str] = field(default_factory=FrozenMap)

    @property
    def wall_s(self) -> float:
        return sum(self.wall.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "wall_s": self.wall_s,
            "wall": dict(self.wall),
            "work": dict(self.work),
            "keys": [key.to_json() for key in self.keys],
            "configs": [config.to_json() for config in self.configs],
            "saved": {
                "racing": None if self.racing is None else self.racing.to_json(),
                "early_refusal": self.refusal.to_json(),
                "cutting": self.cutting.to_json(),
                "overlap": None if self.overlap is None else self.overlap.to_json(),
                "cache": self.cache.to_json(),
            },
            "stock": None if self.stock is None else self.stock.to_json(),
            "payback": None if self.payback is None else self.payback.to_json(),
            "unknown": dict(self.unknown),
        }


def account(tunings: Sequence[Tuning]) -> Account:
    """The account of one tuning, or of several keys of one kernel together."""
    tried = [trial for tuning in tunings for trial in tuning.tried]
    builds = BuildTimes(tried)
    wall = sum((Cost(wall=tuning.run.cost.wall) for tuning in tunings), Cost()).wall
    work = sum((tuning.work for tuning in tunings), Cost()).work
    racing, payback = Racing.of(tried), _payback(tunings)
    stock = _stock(tunings, tried, builds)
    return Account(
        keys=tuple(_key_cost(tuning) for tuning in tunings),
        configs=_config_costs(tried),
        wall=FrozenMap({phase: wall[phase] for phase in WALL_PHASES if phase in wall}),
        work=work,
        refusal=Refusal.of(tried, builds),
        cutting=Cutting.of(tried),
        cache=_cache(tunings, tried, builds),
        racing=racing,
        overlap=Overlap(work.get("build", 0.0), wall.get("waiting", 0.0)) if wall else None,
        stock=stock,
        payback=payback,
        unknown=_unknown(wall=wall, racing=racing, stock=stock, payback=payback),
    )


def _unknown(**parts: object) -> FrozenMap[str]:
    return FrozenMap({name: _WHY_UNKNOWN[name] for name, part in parts.items() if not part})


def _stock(tunings: Sequence[Tuning], tried: Sequence[Trial], builds: BuildTimes) -> Stock | None:
    with_triton = all("triton" in tuning.run.workload.toolchain for tuning in tunings)
    return Stock.of(tried, builds) if with_triton and tried else None


def _same_work(trial: Trial, earlier: Trial | None) -> bool:
    return (
        earlier is not None
        and trial.timing is not None
        and (trial.timing, trial.cost) == (earlier.timing, earlier.cost)
    )


def _key_cost(tuning: Tuning) -> KeyCost:
    tried = tuning.tried
    return KeyCost(
        workload=tuning.run.workload,
        run_id=tuning.run.id,
        wall_s=tuning.run.cost.wall_s,
        tried=len(tried),
        builds=sum(spent(trial, "build") > 0 for trial in tried),
        measured=sum(trial.status.measured for trial in tried),
    )


def _config_costs(tried: Iterable[Trial]) -> tuple[ConfigCost, ...]:
    """The most expensive first."""
    groups: dict[str, list[Trial]] = {}
    for trial in tried:
        groups.setdefault(trial.config.id, []).append(trial)
    costs = [_config_cost(trials) for trials in groups.values()]
    return tuple(sorted(costs, key=lambda cost: -cost.total_s))


def _config_cost(trials: Sequence[Trial]) -> ConfigCost:
    by_stage = stages(sum((trial.cost for trial in trials), Cost()))
    stage, stage_s = max(by_stage.items(), key=lambda item: item[1], default=("", 0.0))
    return ConfigCost(
        config=trials[0].config,
        statuses=FrozenMap(Counter(str(trial.status) for trial in trials)),
        build_s=sum(spent(trial, "build") for trial in trials),
        stage=stage,
        stage_s=stage_s,
        first_call_s=sum(spent(trial, "first_call") for trial in trials),
        measure_s=sum(spent(trial, *_MEASURING) for trial in trials),
    )


def _cache(tunings: Sequence[Tuning], tried: Sequence[Trial], builds: BuildTimes) -> CacheSavings:
    known = [trial for tuning in tunings for trial in tuning.known]
    fits = all(tuning.known_fits for tuning in tunings)
    built, built_s = already_built(tried, builds)
    known_s = sum((trial.cost.work_s for trial in known), start=0.0) if fits else None
    return CacheSavings(len(known), known_s, built, built_s)


def _payback(tunings: Sequence[Tuning]) -> Payback | None:
    wall_s = best_ns = first_ns = 0.0
    keys, is_first = 0, True
    for tuning in tunings:
        best = tuning.median_ns(tuning.run.best)
        first = tuning.median_ns(tuning.first or tuning.earliest)
        if best and first and tuning.run.cost.wall_s:
            keys += 1
            wall_s += tuning.run.cost.wall_s
            best_ns += best
            first_ns += first
            is_first = is_first and tuning.first is not None
    return Payback(keys, wall_s, best_ns, first_ns - best_ns, is_first) if keys else None

"""What a tuning did not have to do, from the trials of those who did it and those who did not.

Every function takes the trials of one or more runs and is pure. What cannot be known is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.status import Status
from whet.core.timing import median
from whet.core.trial import Cost, Trial

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


def racing(trials: Iterable[Trial]) -> Racing | None:
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
    return Racing(configs, taken, full) if configs else None


def refusal(trials: Iterable[Trial], builds: BuildTimes) -> Refusal:
    refused = [trial for trial in trials if builds.is_early_refusal(trial)]
    spent_s = sum((spent(trial, "build") for trial in refused), start=0.0)
    return Refusal(len({trial.config.id for trial in refused}), spent_s, builds.typical_s)


def cutting(trials: Iterable[Trial]) -> Cutting:
    cut = list(trials)
    builds = [trial for trial in cut if trial.status is Status.BUILD_TIMEOUT]
    runs = [trial for trial in cut if trial.status is Status.RUN_TIMEOUT]
    return Cutting(
        builds=len(builds),
        build_s=sum((spent(trial, "build") for trial in builds), start=0.0),
        runs=len(runs),
        run_s=sum((spent(trial, "measure", "first_call") for trial in runs), start=0.0),
    )


def already_built(trials: Iterable[Trial], builds: BuildTimes) -> tuple[int, float | None]:
    """How many were measured without a full build, and what that saved, if one was ever made."""
    if builds.typical_s is None:
        return 0, None
    found = [trial for trial in trials if trial.status.measured and not builds.is_full(trial)]
    saved = (max(0.0, builds.typical_s - spent(trial, "build")) for trial in found)
    return len(found), sum(saved, start=0.0)


def stock(trials: Iterable[Trial], builds: BuildTimes) -> Stock:
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
    return Stock(build_s + sum(refused.values()), benchmarks, benchmark_s)

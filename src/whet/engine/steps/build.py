"""Builds: what is submitted, in which order, for how long, and what came of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from whet.builds.builder import ENOUGH, Builder, cut_for
from whet.builds.job import BuildResult
from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.event import BuildFinished
from whet.core.frozen import FrozenMap
from whet.core.space import Space
from whet.core.status import Status
from whet.core.trial import Cost, Trial
from whet.engine.guard import Guard
from whet.engine.steps.record import Candidate, Recorder
from whet.engine.target import Target

# Before all others, whatever is expected of them.
AT_ONCE = -1


@dataclass
class Builds:
    """The builds of one run.

    `relatives` gives trials of the same kernel on other keys; it is asked only where builds wait.
    `never_cut` are configs that get all of `limit_s`, besides the author's first. `at_once` is how
    many builds run at once on other machines; None where they run here, whose cores are few.
    """

    target: Target
    builder: Builder
    recorder: Recorder
    guard: Guard
    limit_s: float
    candidates: dict[str, Candidate]
    relatives: Callable[[], Sequence[Trial]] = tuple
    never_cut: Collection[Config] = ()
    at_once: int | None = None
    _seconds: dict[str, float] = field(default_factory=dict)
    _expected: Expectation | None = None

    def submit(self, candidate: Candidate) -> None:
        """One that has nothing to build is `ready` at once."""
        config = candidate.config
        job = self.target.job(config)
        if job is None:
            candidate.ready = True
        elif config == self.target.space.first or config in self.never_cut:
            # The author's own is what people compare with, so its build is not cut; nor are those
            # that were the fastest elsewhere.
            self.builder.submit(config, job, AT_ONCE, limit_s=self.limit_s)
        else:
            self.builder.submit(config, job, priority=candidate.order)

    def put_in_order(self, *, last: bool = False) -> None:
        """What is expected to be good and cheap is built first, after the author's own; where
        these are the `last`, not what all machines would have to wait for."""
        if self.target.shares_host:
            if self.at_once is None:
                return
            last = True  # nothing is measured before the batch is built
        waiting = [c for c in self.builder.waiting() if c != self.target.space.first]
        if len(waiting) < 2:
            return
        with self.guard.searching():
            if self._expected is None:
                self._expected = self._recalled()
            order = self._expected.order(waiting, self.at_once if last else None)
        if order is not None:
            self.builder.reorder({config.id: place for place, config in enumerate(order)})

    def collect(self, timeout: float) -> list[Candidate | tuple[Candidate, ConfigFailure]]:
        """What has been built, or has failed to be, as soon as that is anything; nothing where
        builds are given up."""
        done: list[Candidate | tuple[Candidate, ConfigFailure]] = []
        for result in self._results(timeout):
            self._learn_from(result)
            try:
                done.append(self._built(result))
            except ConfigFailure as failure:
                done.append((self.candidates[result.config.id], failure))
        return done

    def build_now(self, candidate: Candidate, seconds_left: Callable[[], float]) -> bool:
        """Before all others, and waited for; False where the time ran out first."""
        job = None if candidate.ready else self.target.job(candidate.config)
        if job is None:
            candidate.ready = True
            return True
        self.builder.submit(candidate.config, job, AT_ONCE, limit_s=self.limit_s)
        while (left := seconds_left()) > 0 and not self.guard.watch.gave_up:
            for result in self._results(min(3600.0, left)):
                if result.config.id == candidate.id:
                    self._built(result)
                    return True
        return False

    def measured(self, candidate: Candidate) -> None:
        """What it took to build counts once it has led to something."""
        seconds = candidate.cost.work.get("build", 0.0)
        if seconds:
            self._seconds[candidate.id] = seconds
        timing = candidate.timing
        if self._expected is not None and timing is not None and not timing.host_bound:
            self._expected.timed(candidate.config, timing.median_ns)

    def cut(self, may_win: Callable[[str], bool]) -> None:
        """Builds that take many times longer than those that led to something are given up."""
        if self.builder.pending and len(self._seconds) >= ENOUGH:
            standing = [seconds for id, seconds in self._seconds.items() if may_win(id)]
            self.builder.cut(cut_for(standing, len(self._seconds), self.limit_s))

    def _results(self, timeout: float) -> list[BuildResult]:
        found: list[BuildResult] = []
        end = time.monotonic() + timeout
        with self.guard.waiting(self.builder, self.limit_s):
            while not found and self.builder.pending and not self.guard.watch.gave_up:
                left = end - time.monotonic()
                found = self.builder.ready(max(0.0, min(1.0, left)))
                if left <= 0:
                    break
        return found

    def _built(self, result: BuildResult) -> Candidate:
        candidate = self.candidates[result.config.id]
        if not result.remembered:
            stages = {f"build.{name}": seconds for name, seconds in result.stages.items()}
            candidate.cost += Cost(FrozenMap({"build": result.seconds, **stages}))
            self.recorder.emit(
                BuildFinished(
                    result.config,
                    result.seconds,
                    ok=result.status is Status.OK,
                    worker=result.worker,
                    started=result.started,
                    stages=result.stages,
                    status=result.status,
                )
            )
        if result.status is not Status.OK:
            raise ConfigFailure(result.status, result.error, result.limit)
        candidate.artifact = result.artifact
        candidate.facts = FrozenMap({**candidate.facts, **result.facts})
        candidate.ready = True
        return candidate

    def _learn_from(self, result: BuildResult) -> None:
        took_its_time = result.status in (Status.OK, Status.BUILD_TIMEOUT)
        if self._expected is not None and took_its_time and not result.remembered:
            self._expected.built(result.config, result.seconds)

    def _recalled(self) -> Expectation:
        """What other keys taught, and this run so far."""
        expected = Expectation(self.target.space)
        for trial in self.relatives():
            if trial.status.measured and trial.timing is not None:
                expected.timed(trial.config, trial.timing.median_ns, where=trial.workload_id)
            if trial.status.measured or trial.status is Status.BUILD_TIMEOUT:
                expected.built(trial.config, trial.cost.work.get("build", 0.0))
        for candidate in self.candidates.values():
            if candidate.timing is not None:
                expected.timed(candidate.config, candidate.timing.median_ns)
                expected.built(candidate.config, candidate.cost.work.get("build", 0.0))
        return expected


# Fewer outcomes than this say too little to change the strategy's order.
FEWEST_OUTCOMES = 8

# The order is made anew when so many outcomes have come in since the last time.
EVERY = 4

# What a factor in build time counts against the same factor in kernel time.
BUILD_WEIGHT = 0.5

# Of 537 recorded builds on 4 machines, twice as long left some machines without work at the end,
# and with four times as long, what is expected to be good would no longer come first.
EARLY = 3.0

_RIDGE = 0.02

_Matrix = npt.NDArray[np.float64]


class Expectation:
    """Two ridge regressions on a space's own encoding: of the log of the time a kernel takes, and
    of the log of the time its build takes. The same outcomes give the same order.

    Kernel times are compared only with those of the same `where`: a workload of another key says
    which configs are quicker there, and not how quick they are here.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._rows: dict[str, _Matrix] = {}
        self._build_s: dict[str, float] = {}
        self._ns: dict[tuple[str, str], float] = {}
        self._known: dict[str, Config] = {}
        self._news = 0

    def built(self, config: Config, seconds: float) -> None:
        """A failure counts where it took the time that a success would have: not a refusal."""
        if seconds > 0:
            self._learn(config)
            self._build_s[config.id] = math.log(seconds)

    def timed(self, config: Config, ns: float, where: str = "") -> None:
        if ns > 0:
            self._learn(config)
            self._ns[where, config.id] = math.log(ns)

    def order(self, configs: Sequence[Config], at_once: int | None = None) -> list[Config] | None:
        """Best guess first; None while too little is known, or has been learnt since last time.

        With `at_once`, these are the last to be built, so many at the same time: long builds then
        come first where everybody would have to wait for them at the end."""
        if len(self._known) < FEWEST_OUTCOMES or self._news < EVERY or not configs:
            return None
        self._news = 0
        self._encode([*self._known.values(), *configs])
        asked = _stacked(self._rows[config.id] for config in configs)
        build_weights = self._build_weights()
        scores = asked @ (self._time_weights() + BUILD_WEIGHT * build_weights)
        # Rounded, so that configs which are expected to be alike keep the order they came in.
        places = [int(at) for at in np.argsort(scores.round(9), kind="stable")]
        if at_once is not None and self._build_s:
            guessed = zip(configs, (asked @ build_weights).tolist(), strict=True)
            seconds = [math.exp(self._build_s.get(config.id, log)) for config, log in guessed]
            places = long_in_time(places, seconds, at_once)
        return [configs[at] for at in places]

    def _learn(self, config: Config) -> None:
        self._known[config.id] = config
        self._news += 1

    def _time_weights(self) -> _Matrix:
        logs: dict[str, list[float]] = {}
        for (where, _), log in self._ns.items():
            logs.setdefault(where, []).append(log)
        usual = {where: sum(some) / len(some) for where, some in logs.items()}
        relative = [log - usual[where] for (where, _), log in self._ns.items()]
        return self._fitted([id for _, id in self._ns], relative)

    def _build_weights(self) -> _Matrix:
        return self._fitted(list(self._build_s), list(self._build_s.values()))

    def _fitted(self, ids: Sequence[str], logs: Sequence[float]) -> _Matrix:
        width = next(iter(self._rows.values())).size
        if not ids:
            return np.zeros(width)
        rows = _stacked(self._rows[id] for id in ids)
        penalty = np.full(width, _RIDGE)
        penalty[0] = 1e-9  # the level itself is not held back
        weights: _Matrix = np.linalg.solve(
            rows.T @ rows + np.diag(penalty), rows.T @ np.asarray(logs)
        )
        return weights

    def _encode(self, configs: Sequence[Config]) -> None:
        """A one, each feature, and its square: tiles have a size that is best."""
        new = [config for config in configs if config.id not in self._rows]
        if new:
            features = self._space.encode(new) - 0.5
            rows = np.hstack([np.ones((len(new), 1)), features, features**2])
            self._rows.update((config.id, row) for config, row in zip(new, rows, strict=True))


def long_in_time(order: Sequence[int], seconds: Sequence[float], at_once: int) -> list[int]:
    """The order, except that the longest is begun once the rest, `at_once` at a time, will be done
    within `EARLY` times as long: short ones are then left to fill the gaps.

    `[0, 1, 2, 3]` that take 1, 1, 1 and 9 seconds, two at once, is `[3, 0, 1, 2]`.
    """
    left = dict.fromkeys(order)
    longest = sorted(order, key=lambda at: -seconds[at])
    work, found = sum(seconds[at] for at in order), []
    for long in longest:
        while left and long in left:
            chosen = long if EARLY * seconds[long] * at_once >= work else next(iter(left))
            del left[chosen]
            found.append(chosen)
            work -= seconds[chosen]
    return found


def _stacked(rows: Iterable[_Matrix]) -> _Matrix:
    return np.array(list(rows))

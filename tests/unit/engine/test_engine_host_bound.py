"""Timings taken one launch at a time are never compared with clean ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from whet.core.config import Config
from whet.core.event import BestChanged, Event
from whet.core.run import Result
from whet.core.status import Status
from whet.engine import Plan, tune
from whet.engine.target import BenchLimits
from whet.measure import Reading, Runnable, Warm
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Bench
from whet.measure.timers import CpuTimer
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget

Bound = Callable[[Config, int], bool]


class SometimesHostBound:
    """`bound(config, visit)` says whether a visit, counted from 1, finds the host too slow."""

    name = "cpu"

    def __init__(self, inner: CpuTimer, bound: Bound) -> None:
        self._inner = inner
        self._bound = bound
        self._visits: Counter[Config] = Counter()

    def warm(self, run: Runnable) -> Warm:
        return self._inner.warm(run)

    def measure(self, run: Any, samples: int, warm: Warm) -> Reading:
        reading = self._inner.measure(run, samples, warm)
        self._visits[run._config] += 1
        if not self._bound(run._config, self._visits[run._config]):
            return reading
        return replace(reading, quality="host_bound")


def micros(config: Any) -> float:
    return float(1000 * config["t"])


class HostBoundTarget(FakeTarget):
    def __init__(self, times: list[int], bound: Bound) -> None:
        super().__init__([{"t": t} for t in times], micros)
        self._bound = bound

    def bench(self, limits: BenchLimits) -> Bench:
        clock = self.device.clock
        inner = CpuTimer(clock, clock.cpu, cpu_resolution_ns=1)
        return LocalBench(self, SometimesHostBound(inner, self._bound))


def tuned(times: list[int], bound: Bound, **options: Any) -> Result:
    return tune(HostBoundTarget(times, bound), store=MemoryStore(), search="grid", **options)


def outcome(result: Result, t: int) -> tuple[Status, str]:
    (trial,) = [trial for trial in result.trials if trial.config["t"] == t]
    return trial.status, trial.error


@pytest.mark.parametrize("plan", [None, Plan.fixed(3)])
@pytest.mark.parametrize("times", [[50, 100, 200], [100, 50, 200], [200, 100, 50]])
def test_a_config_that_stays_so_is_out_however_fast_it_reads(
    times: list[int], plan: Plan | None
) -> None:
    result = tuned(times, lambda config, visit: config["t"] == 50, plan=plan)
    assert result.config["t"] == 100
    status, reason = outcome(result, 50)
    assert status is Status.OUTRACED
    assert "one launch" in reason


def test_a_second_look_that_is_clean_makes_up_for_the_first() -> None:
    result = tuned([100, 50, 200], lambda config, visit: config["t"] == 50 and visit == 1)
    assert result.config["t"] == 50
    assert result.best.timing is not None
    assert result.best.timing.quality == "clean"


def test_where_every_config_is_so_they_race_and_the_result_says_it() -> None:
    result = tuned([100, 50, 200], lambda config, visit: True)
    assert result.config["t"] == 50
    assert any("every config" in note for note in result.notes)


def test_where_none_is_nothing_is_said() -> None:
    assert not any("one launch" in note for note in tuned([2, 1], lambda c, v: False).notes)


def test_a_clean_config_is_the_best_so_far_before_a_faster_one_that_is_host_bound() -> None:
    events: list[Event] = []
    tuned([50, 100, 200], lambda config, visit: config["t"] == 50, on_event=events.append)
    best = [event.trial.config["t"] for event in events if isinstance(event, BestChanged)]
    assert best == [50, 100]


def test_a_finalist_that_becomes_so_for_a_moment_is_sampled_again() -> None:
    result = tuned([100, 101], lambda config, visit: config["t"] == 100 and visit in (3, 4))
    assert result.config["t"] == 100
    assert {t.timing.quality for t in result.trials if t.timing is not None} == {"clean"}


def test_a_finalist_that_is_so_now_and_then_is_not_out() -> None:
    """Several rounds share a visit, and in nearly every visit there is one such sample."""
    result = tuned([100, 101], lambda config, visit: config["t"] == 100 and visit % 5 == 3)
    assert result.config["t"] == 100
    assert {t.timing.quality for t in result.trials if t.timing is not None} == {"clean"}


def test_a_finalist_that_becomes_so_for_good_is_out() -> None:
    result = tuned([100, 101], lambda config, visit: config["t"] == 100 and visit > 2)
    assert result.config["t"] == 101
    assert outcome(result, 100)[0] is Status.OUTRACED


def test_a_finalist_that_becomes_so_in_the_middle_of_several_rounds_is_out() -> None:
    result = tuned([100, 101], lambda c, visit: c["t"] == 100 and (visit == 3 or visit > 8))
    assert result.config["t"] == 101
    assert outcome(result, 100)[0] is Status.OUTRACED


def test_a_host_that_becomes_too_slow_for_all_still_lets_the_duel_decide() -> None:
    result = tuned([100, 110], lambda config, visit: visit > 2)
    assert result.config["t"] == 100
    assert {t.timing.quality for t in result.trials if t.timing is not None} == {"clean"}

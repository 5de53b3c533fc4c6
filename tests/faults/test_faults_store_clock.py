"""The wall clock is set back or forward, by years, between runs and during them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import whet
from whet.core.run import Result
from whet.store import MemoryStore, SqliteStore, Store
from whet.testing.samples import a_run, a_trial, a_workload

YEAR = 365 * 86400.0
NOW = 1_800_000_000.0


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return SqliteStore(tmp_path / "store.db") if request.param == "file" else MemoryStore()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`clock(NOW, 0.0)`: the wall clock then reads this, and that, and again from the first."""

    def set_to(*readings: float) -> None:
        endless = itertools.cycle(readings)
        monkeypatch.setattr(time, "time", lambda: next(endless))

    return set_to


def work(n: int) -> int:
    return sum(range(n))


def tuned(store: Store, *values: int) -> Result:
    target = whet.function(work, {"n": list(values)}, isolate=False)
    return whet.tune(target, store=store, jobs=1, seed=1)


@pytest.mark.parametrize("second", [NOW - 30 * YEAR, 0.0, NOW + 9 * YEAR])
@pytest.mark.parametrize("first", [NOW, NOW + 9 * YEAR, 0.0])
def test_the_run_that_came_last_is_the_newest_whatever_its_clock_said(
    store: Store, clock: Callable[..., None], first: float, second: float
) -> None:
    clock(first)
    before = tuned(store, 3000, 4000)
    clock(second)
    after = tuned(store, 10, 3000, 4000)
    workload_id = after.run.workload.id
    assert [run.id for run in store.runs(workload_id)] == [after.run.id, before.run.id]
    best = store.best(workload_id)
    assert best is not None
    assert best.config == after.config
    assert after.config["n"] == 10


def test_a_run_is_answered_by_the_store_after_the_clock_was_set_back(
    store: Store, clock: Callable[..., None]
) -> None:
    clock(NOW)
    tuned(store, 10, 3000)
    clock(NOW - 20 * YEAR)
    assert tuned(store, 10, 3000).source == "stored"


@pytest.mark.parametrize("jump", [-20 * YEAR, 20 * YEAR])
def test_no_duration_is_negative_or_years_long_when_the_clock_jumps_during_a_run(
    store: Store, clock: Callable[..., None], jump: float
) -> None:
    clock(NOW, NOW + jump)
    start = time.perf_counter()
    result = tuned(store, 10, 2000, 3000, 4000)
    spent = time.perf_counter() - start
    seconds = [result.run.wall_s, *result.run.cost.wall.values(), *result.run.cost.work.values()]
    for trial in result.trials:
        seconds += trial.cost.work.values()
    timeline = store.timeline(result.run.id)
    assert timeline is not None
    seconds += [span.seconds for span in timeline.spans]
    seconds += [span.start_s for span in timeline.spans]
    assert all(0.0 <= one <= spent for one in seconds)
    assert max(span.end_s for span in timeline.spans) <= result.run.wall_s


def test_the_trial_appended_last_is_the_latest_whatever_its_clock_said(store: Store) -> None:
    workload = a_workload()
    store.put_workload(workload)
    ahead = a_trial(workload, {"BM": 1}, median_ns=5.0, created=NOW + 10 * YEAR)
    behind = a_trial(workload, {"BM": 1}, median_ns=9.0, created=0.0)
    store.append([ahead])
    store.append([behind])
    assert store.trials(workload.id) == [behind]
    assert store.best(workload.id) == behind
    assert store.latest(workload.id, behind.config.id) == behind
    assert store.trials(workload.id, all=True) == [ahead, behind]


@pytest.mark.parametrize("ahead", [NOW + 10 * YEAR, NOW])
def test_gc_by_age_keeps_what_is_young_beside_moments_that_have_not_come(
    store: Store, ahead: float
) -> None:
    young, future, old = (a_workload(key={"M": m}) for m in (1, 2, 3))
    for workload, created in ((young, NOW - 60), (future, ahead), (old, NOW - 2 * YEAR)):
        store.put_workload(workload)
        store.append([a_trial(workload, created=created)])
    store.save_run(a_run(future, {"BM": 64}, started=ahead))
    store.gc(older_than_s=YEAR)
    assert {summary.workload for summary in store.workloads()} == {young, future}


def test_gc_by_age_removes_nothing_that_a_clock_behind_calls_future(
    store: Store, clock: Callable[..., None]
) -> None:
    workload = a_workload()
    store.put_workload(workload)
    store.append([a_trial(workload, created=NOW)])
    clock(NOW - 30 * YEAR)
    assert store.gc(older_than_s=0).workloads == 0

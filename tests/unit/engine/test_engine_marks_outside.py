"""Marks of first launches that are part of no tuning: a verified pick, a rival between calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.process import Mark, ProcessName, this_process
from whet.core.status import Status
from whet.core.workload import Device, Workload
from whet.engine import guard, tune
from whet.engine.fallback.background import Refinement, TimeBudget, refine
from whet.engine.guard import DeviceLostError
from whet.engine.review.verify import verify
from whet.engine.settings import Settings
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Bench
from whet.store import MemoryStore, Store
from whet.testing.fake_target import FakeTarget
from whet.testing.fakes import NoiseModel
from whet.testing.samples import a_trial

FIRST, FAST, SLOW = Config(block=1), Config(block=2), Config(block=3)
TIMES = {FIRST: 10_000.0, FAST: 8_000.0, SLOW: 12_000.0}
GONE = ProcessName(this_process().host, this_process().boot, 2**22 + 1, 1)
LOST = ConfigFailure(Status.RUN_ERROR, "CUDA error: an illegal memory access", spoils=True)


@pytest.fixture(autouse=True)
def _no_device_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_lost", {})


class Target(FakeTarget):
    """`on_run` is called with a config that is about to run, and what it may do it may do."""

    def __init__(
        self, on_run: Callable[[Config], None] = lambda config: None, toolchain: str = "1"
    ) -> None:
        def time_of(one: Config) -> float:
            on_run(one)
            return TIMES[one]

        super().__init__({"block": [1, 2, 3]}, time_of, noise=NoiseModel(gaussian=0.002))
        device = Device("fake device", "fake", "f1", "1.0")
        self._workload = Workload("fake", "0", device, toolchain=FrozenMap({"cc": toolchain}))
        self.asked: list[BenchLimits] = []
        self.in_process = True

    def workload(self) -> Workload:
        return self._workload

    def bench(self, limits: BenchLimits) -> Bench:
        self.asked.append(limits)
        bench = super().bench(limits)
        bench.in_process = self.in_process  # type: ignore[misc]
        return bench


class Seen:
    """Which marks there are of a workload whenever one of its configs runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.workload_id = ""
        self.marked: dict[Config, list[tuple[Config, ...]]] = {}

    def __call__(self, one: Config) -> None:
        marks = self._store.marks(self.workload_id)
        self.marked.setdefault(one, [mark.configs for mark in marks])


def watched(store: Store, toolchain: str = "1") -> tuple[Target, Seen]:
    seen = Seen(store)
    target = Target(seen, toolchain)
    seen.workload_id = target.workload().id
    return target, seen


def died_with(store: Store, target: Target, config: Config) -> None:
    store.put_workload(target.workload())
    store.mark(Mark(target.workload().id, "run", (config,), GONE, at=107.0))


def spoiling(culprit: Config) -> Callable[[Config], None]:
    def run(one: Config) -> None:
        if one == culprit:
            raise LOST

    return run


class TestBetweenCalls:
    @staticmethod
    def refined(target: Target, store: Store) -> Refinement:
        clock = target.device.clock
        allowance = TimeBudget(0.02, lambda: clock() / 1e9)
        refinement = refine(target, store=store, allowance=allowance)
        for _ in range(1_000_000):
            clock.advance(1e6)
            refinement.after_call()
            if refinement.done:
                return refinement
        raise AssertionError("not done")

    def test_a_rival_is_marked_while_it_first_runs_and_not_afterwards(self) -> None:
        store = MemoryStore()
        target, seen = watched(store)
        assert self.refined(target, store).choice.config == FAST
        assert seen.marked[FAST] == [(FAST,)]
        assert seen.marked[SLOW] == [(SLOW,)]
        assert store.marks(target.workload().id) == []

    def test_the_config_in_use_has_run_before_and_is_not_marked(self) -> None:
        store = MemoryStore()
        target, seen = watched(store)
        self.refined(target, store)
        assert seen.marked[FIRST] == []

    def test_what_was_measured_before_is_not_marked(self) -> None:
        store = MemoryStore()
        target, seen = watched(store)
        store.put_workload(target.workload())
        store.append([a_trial(target.workload(), SLOW, status=Status.OUTRACED)])
        self.refined(target, store)
        assert (seen.marked[SLOW], seen.marked[FAST]) == ([], [(FAST,)])

    def test_what_runs_in_another_process_is_not_marked(self) -> None:
        store = MemoryStore()
        target, seen = watched(store)
        target.in_process = False
        self.refined(target, store)
        assert set(map(tuple, seen.marked.values())) == {()}

    def test_a_rival_that_ran_when_a_process_died_is_not_run_again(self) -> None:
        store, target = MemoryStore(), Target()
        died_with(store, target, FAST)
        assert self.refined(target, store).choice.config == FIRST
        assert set(target.looked) == {FIRST, SLOW}
        assert [mark.configs for mark in store.marks(target.workload().id)] == [(FAST,)]

    def test_a_rival_that_is_known_to_fail_is_not_run_again(self) -> None:
        store, target = MemoryStore(), Target()
        store.put_workload(target.workload())
        failed = a_trial(target.workload(), FAST, status=Status.RUN_ERROR)
        store.append([failed])
        self.refined(target, store)
        assert set(target.looked) == {FIRST, SLOW}

    def test_without_a_store_that_can_be_written_it_goes_on_unmarked(self) -> None:
        target = Target()
        assert self.refined(target, MemoryStore(read_only=True)).choice.config == FAST

    def test_a_rival_that_takes_the_device_ends_it_and_the_next_run_knows(self) -> None:
        store, target = MemoryStore(), Target(spoiling(FAST))
        refinement = self.refined(target, store)
        assert "use the device" in (refinement.failure or "")
        assert refinement.choice.config == FIRST
        (mark,) = store.marks(target.workload().id)
        assert (mark.configs, mark.spoiled) == ((FAST,), True)
        with pytest.raises(DeviceLostError):
            tune(Target(), store=store)


class TestAVerification:
    @pytest.fixture
    def store(self) -> Store:
        kept = MemoryStore()
        assert tune(Target(), store=kept).config == FAST
        return kept

    def test_what_was_measured_before_is_not_marked(self, store: Store) -> None:
        target, seen = watched(store)
        verify(target, store)
        assert seen.marked == {FAST: [], FIRST: []}

    def test_under_a_new_toolchain_each_is_marked_while_it_first_runs(self, store: Store) -> None:
        target, seen = watched(store, toolchain="2")
        done = verify(target, store)
        assert done is not None
        assert done.verdict == "ok"
        assert seen.marked == {FAST: [(FAST,)], FIRST: [(FIRST,)]}
        assert store.marks(target.workload().id) == []

    def test_the_run_after_one_that_died_skips_who_did_it(self, store: Store) -> None:
        target = Target(toolchain="2")
        died_with(store, target, FAST)
        assert tune(target, store=store).config == FIRST
        assert FAST not in target.looked

    def test_a_pick_that_ended_a_process_fails_without_being_run(self, store: Store) -> None:
        target = Target(toolchain="2")
        died_with(store, target, FAST)
        done = verify(target, store)
        assert done is not None
        assert done.verdict == "fails"
        assert "died" in done.reason
        assert FAST not in target.looked

    def test_in_another_process_it_is_run_again(self, store: Store) -> None:
        target = Target(toolchain="2")
        died_with(store, target, FAST)
        target.in_process = False
        done = verify(target, store)
        assert done is not None
        assert done.verdict == "ok"
        assert [limits.isolate for limits in target.asked] == [True]

    @pytest.mark.parametrize(("toolchain", "isolated"), [("1", False), ("2", True)])
    def test_a_store_that_takes_no_marks_has_what_never_ran_measured_elsewhere(
        self, store: Store, toolchain: str, isolated: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store, "_read_only", True)
        target = Target(toolchain=toolchain)
        done = verify(target, store)
        assert done is not None
        assert done.verdict == "ok"
        assert [limits.isolate for limits in target.asked] == [isolated]

    def test_isolation_and_limits_are_those_of_the_settings(self, store: Store) -> None:
        target = Target()
        settings = replace(Settings(), isolate=True, memory_bytes=7, device_memory_bytes=8)
        verify(target, store, settings=settings)
        assert target.asked == [BenchLimits(7, True, 8)]

    def test_a_pick_that_takes_the_device_fails(self, store: Store) -> None:
        done = verify(Target(spoiling(FAST)), store)
        assert done is not None
        assert done.verdict == "fails"
        assert "illegal memory access" in done.reason
        with pytest.raises(DeviceLostError):
            verify(Target(), store)

    def test_a_first_config_that_takes_the_device_is_not_the_picks_fault(
        self, store: Store
    ) -> None:
        target = Target(spoiling(FIRST))
        done = verify(target, store, record=True)
        assert done is not None
        assert done.verdict == "fails"
        assert "[block=1] of 'fake'" in done.reason
        latest = store.latest(target.workload().id, FAST.id)
        assert latest is not None
        assert latest.status is Status.OK

"""Refinement between calls: what it may spend, what it finds, what it leaves behind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import whet
from whet.core.config import Config
from whet.core.errors import ConfigFailure, StoreError
from whet.core.run import Choice, Outcome
from whet.core.status import Status
from whet.engine.fallback.background import (
    CALL_S,
    LONGEST_GAP_S,
    NotNow,
    Refinement,
    TimeBudget,
    refine,
)
from whet.engine.fallback.untuned import choose
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget
from whet.testing.fakes import NoiseModel

FIRST, FAST, SLOW = Config(block=1), Config(block=2), Config(block=3)
CALL_NS = 1e6
NOISE = NoiseModel(gaussian=0.01)


def a_target(times: Mapping[int, float], **options: Any) -> FakeTarget:
    def time_of(config: Config) -> float:
        return times[config["block"]]  # type: ignore[index]

    return FakeTarget({"block": list(times)}, time_of, noise=NOISE, **options)


def seconds_of(target: FakeTarget) -> Callable[[], float]:
    return lambda: target.device.clock() / 1e9


def a_refinement(target: FakeTarget, store: MemoryStore, share: float = 0.02) -> Refinement:
    return refine(target, store=store, allowance=TimeBudget(share, seconds_of(target)))


def serve(
    target: FakeTarget,
    refinement: Refinement,
    calls: int = 5_000_000,
    each: Callable[[], None] = lambda: None,
    call_ns: float = CALL_NS,
) -> int:
    """Makes calls until it is done; how many that took."""
    for call in range(1, calls + 1):
        target.device.clock.advance(call_ns)
        refinement.after_call()
        each()
        if refinement.done:
            return call
    raise AssertionError(f"not done after {calls} calls")


def test_the_faster_config_is_found_and_stored_for_the_next_process() -> None:
    target, store = a_target({1: 10_000, 2: 8_000, 3: 12_000}), MemoryStore()
    refinement = a_refinement(target, store)
    assert refinement.choice.config == FIRST
    serve(target, refinement)
    assert refinement.choice.config == FAST
    chosen = choose(target, store=store, mode="cached")
    assert chosen == Choice(FAST, "exact", 1.0, chosen.reason)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.005])
@pytest.mark.parametrize("building", [False, True])
@pytest.mark.parametrize("kernel_ns", [1e5, 1e7, 1e9])
def test_what_it_spends_never_exceeds_its_share(
    share: float, building: bool, kernel_ns: float
) -> None:
    """Calls do nothing but run the kernel."""
    times = {1: kernel_ns, 2: 0.8 * kernel_ns, 3: 1.2 * kernel_ns}
    target = a_target(times, building=building)
    refinement = a_refinement(target, MemoryStore(), share)
    allowance, began = refinement.allowance, seconds_of(target)()

    def within_bound() -> None:
        assert allowance.spent_s <= share * allowance.elapsed_s
        assert allowance.elapsed_s <= seconds_of(target)() - began + 1e-9

    serve(target, refinement, each=within_bound, call_ns=kernel_ns)
    assert refinement.choice.config == FAST


def test_every_second_that_kernels_take_is_booked() -> None:
    target = a_target({1: 10_000, 2: 8_000})
    refinement = a_refinement(target, MemoryStore())
    calls = serve(target, refinement)
    kernels_s = seconds_of(target)() - calls * CALL_NS / 1e9
    assert refinement.spent_s == pytest.approx(kernels_s)
    assert refinement.allowance.spent_s == pytest.approx(kernels_s + calls * CALL_S)


def test_nothing_is_run_before_it_is_paid_for() -> None:
    target = a_target({1: 10_000, 2: 8_000})
    refinement = a_refinement(target, MemoryStore())
    for _ in range(100):
        refinement.after_call()
    assert target.looked == []
    assert target.device.clock() == 0


def test_a_pause_between_calls_earns_no_more_than_a_slow_call() -> None:
    now = 0.0
    allowance = TimeBudget(0.02, lambda: now)
    allowance.counts_call()
    now = 3600.0
    with allowance.spending():
        pass
    assert allowance.elapsed_s == LONGEST_GAP_S


def test_of_quick_calls_only_some_look_at_the_clock() -> None:
    now = 0.0
    allowance = TimeBudget(0.02, lambda: now)
    looks = 0
    for _ in range(10_000):
        now += 1e-5
        if allowance.counts_call():
            looks += 1
            with allowance.spending():
                pass
    assert 10 <= looks <= 12
    assert allowance.spent_s == pytest.approx(allowance.calls * CALL_S)


def test_calls_that_come_too_quickly_to_be_counted_end_it() -> None:
    target = a_target({1: 10_000, 2: 8_000})
    refinement = a_refinement(target, MemoryStore())
    serve(target, refinement, call_ns=5_000)
    assert "every 5 µs" in (refinement.failure or "")
    assert target.looked == []


@pytest.mark.medium
def test_what_took_longer_than_expected_is_paid_off_first() -> None:
    target = a_target({1: 10_000, 2: 8_000})
    refinement = a_refinement(target, MemoryStore())
    allowance = refinement.allowance
    while not refinement.spent_s:
        target.device.clock.advance(CALL_NS)
        refinement.after_call()
    with allowance.spending():
        target.device.clock.advance(1e9)
    looked, owed = list(target.looked), allowance.spent_s
    while allowance.elapsed_s < 0.99 * owed / allowance.share:
        target.device.clock.advance(CALL_NS)
        refinement.after_call()
    assert target.looked == looked
    serve(target, refinement)


def test_equal_configs_leave_the_one_in_use() -> None:
    target, store = a_target({1: 10_000, 2: 10_000, 3: 10_000}), MemoryStore()
    refinement = a_refinement(target, store)
    serve(target, refinement)
    assert refinement.choice.config == FIRST
    (run,) = store.runs(target.workload().id)
    assert run.best == FIRST
    assert set(run.equals) == {FAST, SLOW}


@pytest.mark.parametrize("seed", range(8))
def test_what_is_not_shown_to_be_faster_does_not_take_over(seed: int) -> None:
    target = FakeTarget(
        {"block": [1, 2]}, lambda config: 10_000.0, noise=NoiseModel(gaussian=0.05), seed=seed
    )
    refinement = a_refinement(target, MemoryStore())
    serve(target, refinement)
    assert refinement.choice.config == FIRST


@pytest.mark.medium
def test_its_run_is_finished_and_does_not_answer_a_whole_tuning() -> None:
    target, store = a_target(dict.fromkeys(range(1, 9), 10_000.0)), MemoryStore()
    serve(target, a_refinement(target, store))
    (run,) = store.runs(target.workload().id)
    assert (run.search, run.outcome, run.exhaustive) == ("idle", Outcome.FINISHED, False)
    assert run.trials == len(store.trials(target.workload().id)) == 4
    assert whet.tune(target, store=store).source == "tuned"


@pytest.mark.medium
@pytest.mark.parametrize("building", [False, True])
def test_a_config_that_fails_is_written_down_and_drops_out(building: bool) -> None:
    def times(config: Config) -> float:
        if config == FAST:
            raise ConfigFailure(Status.RUN_ERROR, "it broke")
        return {1: 10_000.0, 3: 9_000.0}[config["block"]]  # type: ignore[index]

    target = FakeTarget({"block": [1, 2, 3]}, times, noise=NOISE, building=building)
    store = MemoryStore()
    refinement = a_refinement(target, store)
    serve(target, refinement)
    assert refinement.choice.config == SLOW
    trial = store.latest(target.workload().id, FAST.id)
    assert trial is not None
    assert trial.timing is None
    assert (trial.status, trial.error) == (Status.RUN_ERROR, "it broke")


def test_a_config_that_is_clearly_slower_is_dropped_at_first_sight() -> None:
    target, store = a_target({1: 10_000, 2: 90_000}), MemoryStore()
    serve(target, a_refinement(target, store))
    slower = store.latest(target.workload().id, FAST.id)
    assert slower is not None
    assert slower.status is Status.OUTRACED
    assert slower.timing is not None
    assert len(slower.timing.samples) <= 2


def test_a_config_in_use_that_fails_ends_it_without_a_word_to_the_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def times(config: Config) -> float:
        raise ConfigFailure(Status.RUN_ERROR, "it broke")

    target, store = FakeTarget({"block": [1, 2]}, times), MemoryStore()
    refinement = a_refinement(target, store)
    with caplog.at_level(logging.WARNING, "whet"):
        serve(target, refinement)
        refinement.after_call()
    assert refinement.choice.config == FIRST
    assert store.trials(target.workload().id) == []
    [said] = [record.message for record in caplog.records]
    assert "'fake'" in said
    assert said.endswith(": it broke")


def test_a_store_that_cannot_be_written_does_not_change_the_choice() -> None:
    class Full(MemoryStore):
        def append(self, trials: object) -> int:
            raise StoreError("the disk is full")

    target = a_target({1: 10_000, 2: 8_000})
    refinement = a_refinement(target, Full())
    serve(target, refinement)
    assert refinement.choice.config == FAST
    assert refinement.failure is None


def test_a_stored_result_leaves_nothing_to_refine() -> None:
    target, store = a_target({1: 10_000, 2: 8_000}), MemoryStore()
    whet.tune(target, store=store)
    assert a_refinement(target, store).done


@pytest.mark.parametrize("mode", ["cached", "record", "off"])
def test_a_mode_that_does_not_tune_refines_nothing(mode: Any) -> None:
    target, store = a_target({1: 10_000, 2: 8_000}), MemoryStore()
    with whet.mode(mode):
        refinement = a_refinement(target, store)
    for _ in range(1000):
        target.device.clock.advance(1e9)
        refinement.after_call()
    assert refinement.choice.config == FIRST
    assert target.looked == []


def test_a_step_that_is_not_wanted_now_is_taken_later() -> None:
    class Refusing:
        def __enter__(self) -> None:
            raise NotNow

        def __exit__(self, *_: object) -> None: ...

    target, store = a_target({1: 10_000, 2: 8_000}), MemoryStore()
    refinement = a_refinement(target, store)
    for _ in range(10_000):
        target.device.clock.advance(CALL_NS)
        refinement.after_call(Refusing())
    assert target.looked == []
    serve(target, refinement)
    assert refinement.choice.config == FAST


def test_a_thread_does_nothing_while_another_one_is_at_it() -> None:
    allowance = TimeBudget(0.02)
    entered: list[bool] = []

    def enter() -> None:
        with allowance.spending() as alone:
            entered.append(alone)

    with allowance.spending() as alone:
        other = threading.Thread(target=enter)
        other.start()
        other.join()
    assert alone
    assert entered == [False]


def test_two_that_share_an_allowance_keep_to_one_share() -> None:
    one, two = a_target({1: 10_000, 2: 8_000}), a_target({1: 10_000, 2: 8_000})
    two.device.clock, two.name = one.device.clock, "other"
    allowance = TimeBudget(0.02, seconds_of(one))
    refinements = [refine(t, store=MemoryStore(), allowance=allowance) for t in (one, two)]
    while not all(refinement.done for refinement in refinements):
        for refinement in refinements:
            one.device.clock.advance(CALL_NS)
            refinement.after_call()
            assert allowance.spent_s <= 0.02 * allowance.elapsed_s
    assert [refinement.choice.config for refinement in refinements] == [FAST, FAST]

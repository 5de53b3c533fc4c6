"""What was measured in another way is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.event import BuildStarted, Event
from whet.core.frozen import FrozenMap
from whet.core.status import Limit, Status
from whet.core.timing import Method, Summary, Timing
from whet.core.trial import Trial
from whet.engine import tune
from whet.engine.recall import Knowledge, relatives
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Bench
from whet.measure.timers import CpuTimer
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget

COLD, WARM = Method("cuda", "cold"), Method("cuda", "warm")
CONFIG = Config(t=1)


def micros(config: Any) -> float:
    return float(1000 * config["t"])


def fake(*times: int) -> FakeTarget:
    return FakeTarget([{"t": t} for t in times], micros)


def known(target: FakeTarget, trial: Trial, method: Method | None) -> Knowledge:
    store = MemoryStore()
    store.put_workload(target.workload())
    store.append([trial])
    return Knowledge.recall(store, target.workload().id, target.space, {"build_s": 60.0}, method)


def trial(target: FakeTarget, status: Status = Status.OK, **more: Any) -> Trial:
    return Trial(target.workload().id, CONFIG, status, **more)


def test_a_timing_knows_how_it_was_taken() -> None:
    assert Timing((1.0,), "cuda", l2="cold").method == COLD


def test_a_trial_of_another_l2_state_or_timer_is_neither_settled_nor_an_incumbent() -> None:
    target = fake(1, 2)
    cold = trial(target, timing=Timing((5.0,), "cuda", l2="cold"))
    assert list(known(target, cold, COLD).settled) == [CONFIG.id]
    for other in (WARM, Method("cpu"), Method("cuda-graph", "cold")):
        assert known(target, cold, other) == Knowledge({}, (), None)


def test_everything_compares_where_the_method_is_not_known() -> None:
    target = fake(1, 2)
    cold = trial(target, timing=Timing((5.0,), "cuda", l2="cold"))
    assert [one.config for one in known(target, cold, None).incumbents] == [CONFIG]


def test_somebody_elses_summary_never_counts() -> None:
    target = fake(1, 2)
    foreign = trial(target, timing=Timing((), "cuda", l2="cold", foreign=Summary(5, 4, 6, "them")))
    for method in (COLD, None):
        assert known(target, foreign, method).settled == {}


def test_a_failure_holds_however_its_config_would_have_been_measured() -> None:
    target = fake(1, 2)
    late = trial(target, Status.BUILD_TIMEOUT, limit=Limit("build_s", 60.0))
    assert list(known(target, late, WARM).settled) == [CONFIG.id]


def test_a_run_measured_in_another_way_does_not_answer() -> None:
    store, target = MemoryStore(), fake(3, 1, 2)
    tune(target, store=store)
    assert tune(fake(3, 1, 2), store=store).source == "stored"
    other = fake(3, 1, 2)
    other.method = COLD
    assert tune(other, store=store).source == "tuned"
    assert len(other.looked) == 3


def test_a_searched_run_measured_in_another_way_does_not_answer_either() -> None:
    store = MemoryStore()
    budget = Budget(trials=2)
    tune(fake(3, 1, 2), store=store, budget=budget)
    assert tune(fake(3, 1, 2), store=store, budget=budget).source == "stored"
    other = fake(3, 1, 2)
    other.method = COLD
    assert tune(other, store=store, budget=budget).source == "tuned"


def test_relatives_are_trials_of_the_same_kernel_on_other_keys() -> None:
    store, target = MemoryStore(), fake(1, 2)
    mine = target.workload()
    larger = replace(mine, key=FrozenMap({"n": 4096}))
    changed = replace(larger, fingerprint="edited")
    for workload in (mine, larger, changed):
        store.put_workload(workload)
        ok = Trial(workload.id, CONFIG, Status.OK, timing=Timing((5.0,), "cpu"))
        gone = replace(ok, config=Config(t=99), id="gone" + workload.id)
        store.append([ok, gone])
    assert [(one.workload_id, one.config) for one in relatives(store, mine, target.space)] == [
        (larger.id, CONFIG)
    ]


def test_what_is_stored_for_a_host_that_was_too_slow_is_measured_again_beside_newcomers() -> None:
    store, target = MemoryStore(), fake(1, 2)
    store.put_workload(target.workload())
    bound = Timing((1.0, 1.0), "cpu", quality="host_bound")
    store.append([trial(target, timing=bound)])
    events: list[Event] = []
    result = tune(target, store=store, on_event=events.append)
    assert {config["t"] for config in target.looked} == {1, 2}
    assert result.best.timing is not None
    assert result.best.timing.quality == "clean"
    assert not any(isinstance(event, BuildStarted) for event in events)


def test_what_is_known_is_asked_again_where_a_bench_has_to_measure_in_another_way() -> None:
    class Full(FakeTarget):
        """Has no memory for the way it meant to measure, and learns so from its bench."""

        def bench(self, limits: BenchLimits) -> Bench:
            self.method = Method(CpuTimer.name, "warm")
            return super().bench(limits)

    store = MemoryStore()
    tune(fake(1, 2), store=store)
    target = Full([{"t": 1}, {"t": 2}, {"t": 3}], micros)
    result = tune(target, store=store)
    assert result.known == 0
    assert {config["t"] for config in target.looked} == {1, 2, 3}
